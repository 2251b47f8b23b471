-- NEXMark: an auction house, and the questions that its benchmark asks of a stream of bids.
--
-- Each question is a topology, named as the benchmark numbers it, and the table that it writes.
-- All of them run at once, each over all of its events; SHOW TOPOLOGIES says how far they are.
-- Left out is the log in files (q10), which is a sink.

CREATE SOURCE bid (
    auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL,
    channel VARCHAR NOT NULL, url VARCHAR NOT NULL, date_time TIMESTAMP NOT NULL, extra VARCHAR NOT NULL,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds'
) WITH (connector = 'nexmark', entity = 'bid', events = 1000000);

CREATE SOURCE auction (
    id BIGINT NOT NULL, seller BIGINT NOT NULL, category BIGINT NOT NULL, date_time TIMESTAMP NOT NULL,
    expires TIMESTAMP NOT NULL,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds'
) WITH (connector = 'nexmark', entity = 'auction', events = 1000000);

CREATE SOURCE person (
    id BIGINT NOT NULL, name VARCHAR NOT NULL, city VARCHAR NOT NULL, state VARCHAR NOT NULL, date_time TIMESTAMP NOT NULL,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds'
) WITH (connector = 'nexmark', entity = 'person', events = 1000000);

-- q0: every bid, as it comes.
CREATE TABLE passed_bid (auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP, extra VARCHAR);
CREATE TOPOLOGY q0 AS (
    INSERT INTO passed_bid SELECT auction, bidder, price, date_time, extra FROM bid
);

-- q1: every bid, with its price in euros.
CREATE TABLE euro_bid (auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), date_time TIMESTAMP, extra VARCHAR);
CREATE TOPOLOGY q1 AS (
    INSERT INTO euro_bid SELECT auction, bidder, 0.908 * price, date_time, extra FROM bid
);

-- q2: the bids on some auctions.
CREATE TABLE chosen_bid (auction BIGINT, price BIGINT);
CREATE TOPOLOGY q2 AS (
    INSERT INTO chosen_bid SELECT auction, price FROM bid WHERE auction % 123 = 0
);

-- q3: who sells things of a category in three states. A person may sign in after the first auction: people and auctions are
-- tables, and a view joins them, in the commits of the topology.
CREATE TABLE seller (id BIGINT PRIMARY KEY, name VARCHAR, city VARCHAR, state VARCHAR);
CREATE TABLE offer (id BIGINT PRIMARY KEY, seller BIGINT);
CREATE INDEX offer_by_seller ON offer (seller);
CREATE MATERIALIZED VIEW local_offer AS
    SELECT o.id AS auction, s.id AS seller, s.name, s.city, s.state FROM offer o JOIN seller s ON s.id = o.seller;
CREATE TOPOLOGY q3 COMMIT EVERY 10000 ROWS OR EVERY INTERVAL '100 milliseconds' AS (
    INSERT INTO seller SELECT id, name, city, state FROM person WHERE state IN ('OR', 'ID', 'CA');
    INSERT INTO offer SELECT id, seller FROM auction WHERE category = 10
);

-- q5: the auction with the most bids of the last ten seconds, every two seconds; of several, the one that is older.
CREATE TABLE hot_auction (window_start TIMESTAMP PRIMARY KEY, window_end TIMESTAMP, auction BIGINT, bids BIGINT);
CREATE TOPOLOGY q5 AS (
    CREATE STREAM auction_bids AS
        SELECT auction, window_start, window_end, count(*) AS bids
        FROM HOP(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds')
        GROUP BY auction, window_start, window_end;
    INSERT INTO hot_auction
        SELECT window_start, window_end, first_value(auction ORDER BY bids DESC, auction), max(bids)
        FROM auction_bids
        GROUP BY window_start, window_end
);

-- q7: the highest bid of each ten seconds; of several, the first.
CREATE TABLE highest_bid (window_start TIMESTAMP PRIMARY KEY, price BIGINT, auction BIGINT, bidder BIGINT, at TIMESTAMP);
CREATE TOPOLOGY q7 AS (
    INSERT INTO highest_bid
        SELECT window_start, max(price),
            first_value(auction ORDER BY price DESC, date_time),
            first_value(bidder ORDER BY price DESC, date_time),
            first_value(date_time ORDER BY price DESC, date_time)
        FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')
        GROUP BY window_start
);

-- q8: who opened an auction within the ten seconds in which he signed in.
CREATE TABLE new_seller (id BIGINT, name VARCHAR, window_start TIMESTAMP, PRIMARY KEY (id, window_start));
CREATE TOPOLOGY q8 AS (
    CREATE STREAM new_person AS
        SELECT id, name, window_start, window_end FROM TUMBLE(person, date_time, INTERVAL '10 seconds')
        GROUP BY id, name, window_start, window_end;
    CREATE STREAM selling AS
        SELECT seller, window_start, window_end FROM TUMBLE(auction, date_time, INTERVAL '10 seconds')
        GROUP BY seller, window_start, window_end;
    INSERT INTO new_seller
        SELECT p.id, p.name, p.window_start
        FROM new_person p JOIN selling a
            ON a.seller = p.id AND a.window_start = p.window_start AND a.window_end = p.window_end
);

-- q9: the winning bid of each auction: the highest while it was open, of equal ones the first. A bid is looked for until
-- its auction has expired, and an auction that comes later than its bids finds them.
CREATE TABLE winning_bid (
    auction BIGINT PRIMARY KEY, seller BIGINT, category BIGINT, expires TIMESTAMP, bidder BIGINT, price BIGINT, at TIMESTAMP
);
CREATE INDEX winning_bid_by_seller ON winning_bid (seller);

-- q4: the mean of the winning bids of each category. The change of a winning bid takes the one before back out of its mean.
CREATE MATERIALIZED VIEW category_price AS
    SELECT category, avg(price) AS price FROM winning_bid GROUP BY category;

-- q6: the mean of the winning bids of the last ten auctions of each seller.
CREATE MATERIALIZED VIEW seller_price AS
    SELECT seller, avg(price) AS price
    FROM (SELECT seller, price, row_number() OVER (PARTITION BY seller ORDER BY expires DESC, auction DESC) AS place
        FROM winning_bid) ranked
    WHERE place <= 10
    GROUP BY seller;

CREATE TOPOLOGY q9 COMMIT EVERY 10000 ROWS OR EVERY INTERVAL '100 milliseconds' WITH (merge = 'event_time') AS (
    CREATE STREAM valid_bid AS
        SELECT a.id AS auction, a.seller, a.category, a.expires, b.bidder, b.price, b.date_time AS at
        FROM auction a JOIN bid b ON b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires;
    INSERT INTO winning_bid
        SELECT auction, seller, category, expires, bidder, price, at
        FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, at) AS place FROM valid_bid) ranked
        WHERE place = 1
        ON CONFLICT (auction) DO UPDATE SET seller = EXCLUDED.seller, category = EXCLUDED.category,
            expires = EXCLUDED.expires, bidder = EXCLUDED.bidder, price = EXCLUDED.price, at = EXCLUDED.at
);

-- q11: how often a person bids without a pause of ten seconds.
CREATE TABLE bidding_session (
    bidder BIGINT, began TIMESTAMP, ended TIMESTAMP, bids BIGINT, PRIMARY KEY (bidder, began)
);
CREATE TOPOLOGY q11 AS (
    INSERT INTO bidding_session
        SELECT bidder, window_start, window_end, count(*)
        FROM SESSION(bid, date_time, INTERVAL '10 seconds')
        GROUP BY bidder, window_start, window_end
);

-- q12: how often a person bids in each ten seconds, by the time of the bids.
CREATE TABLE bidder_activity (
    bidder BIGINT, window_start TIMESTAMP, window_end TIMESTAMP, bids BIGINT, PRIMARY KEY (bidder, window_start)
);
CREATE TOPOLOGY q12 AS (
    INSERT INTO bidder_activity
        SELECT bidder, window_start, window_end, count(*)
        FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')
        GROUP BY bidder, window_start, window_end
);

-- q13: every bid, with what a table says about its auction.
CREATE TABLE side_input (key BIGINT PRIMARY KEY, value VARCHAR);
INSERT INTO side_input SELECT i, 'value ' || i FROM generate_series(0, 9999) g(i);
CREATE TABLE enriched_bid (auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP, value VARCHAR);
CREATE TOPOLOGY q13 AS (
    INSERT INTO enriched_bid
        SELECT b.auction, b.bidder, b.price, b.date_time, s.value
        FROM bid b JOIN side_input s ON s.key = b.auction % 10000
);

-- q14: bids in a range of prices, with the time of day, and how many letters "c" are in them.
CREATE TABLE computed_bid (
    auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), time_of_day VARCHAR, date_time TIMESTAMP, extra VARCHAR, c BIGINT
);
CREATE TOPOLOGY q14 AS (
    INSERT INTO computed_bid
        SELECT auction, bidder, 0.908 * price,
            CASE
                WHEN extract(hour FROM date_time) BETWEEN 8 AND 18 THEN 'day'
                WHEN extract(hour FROM date_time) <= 6 OR extract(hour FROM date_time) >= 20 THEN 'night'
                ELSE 'other'
            END,
            date_time, extra, length(extra) - length(replace(extra, 'c', ''))
        FROM bid
        WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
);

-- q15: bids, bidders and auctions of each day, by three ranks of price. First the bids of each bidder and of each auction
-- in a day, then how many they are.
CREATE TABLE daily_statistics (
    day TIMESTAMP PRIMARY KEY,
    bids BIGINT, rank1_bids BIGINT, rank2_bids BIGINT, rank3_bids BIGINT,
    bidders BIGINT, rank1_bidders BIGINT, rank2_bidders BIGINT, rank3_bidders BIGINT,
    auctions BIGINT, rank1_auctions BIGINT, rank2_auctions BIGINT, rank3_auctions BIGINT
);
CREATE TOPOLOGY q15 AS (
    CREATE STREAM bidder_day AS
        SELECT bidder, window_start AS day, count(*) AS bids,
            count(*) FILTER (WHERE price < 10000) AS rank1,
            count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2,
            count(*) FILTER (WHERE price >= 1000000) AS rank3
        FROM TUMBLE(bid, date_time, INTERVAL '1 day')
        GROUP BY bidder, window_start;
    CREATE STREAM auction_day AS
        SELECT auction, window_start AS day,
            count(*) FILTER (WHERE price < 10000) AS rank1,
            count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2,
            count(*) FILTER (WHERE price >= 1000000) AS rank3
        FROM TUMBLE(bid, date_time, INTERVAL '1 day')
        GROUP BY auction, window_start;
    INSERT INTO daily_statistics
            (day, bids, rank1_bids, rank2_bids, rank3_bids, bidders, rank1_bidders, rank2_bidders, rank3_bidders)
        SELECT day, sum(bids), sum(rank1), sum(rank2), sum(rank3),
            count(*), count(nullif(rank1, 0)), count(nullif(rank2, 0)), count(nullif(rank3, 0))
        FROM bidder_day GROUP BY day
        ON CONFLICT (day) DO UPDATE SET bids = EXCLUDED.bids, rank1_bids = EXCLUDED.rank1_bids,
            rank2_bids = EXCLUDED.rank2_bids, rank3_bids = EXCLUDED.rank3_bids, bidders = EXCLUDED.bidders,
            rank1_bidders = EXCLUDED.rank1_bidders, rank2_bidders = EXCLUDED.rank2_bidders,
            rank3_bidders = EXCLUDED.rank3_bidders;
    INSERT INTO daily_statistics (day, auctions, rank1_auctions, rank2_auctions, rank3_auctions)
        SELECT day, count(*), count(nullif(rank1, 0)), count(nullif(rank2, 0)), count(nullif(rank3, 0))
        FROM auction_day GROUP BY day
        ON CONFLICT (day) DO UPDATE SET auctions = EXCLUDED.auctions, rank1_auctions = EXCLUDED.rank1_auctions,
            rank2_auctions = EXCLUDED.rank2_auctions, rank3_auctions = EXCLUDED.rank3_auctions
);

-- q16: the same for each channel, with the minute of its last bid.
CREATE TABLE channel_statistics (
    channel VARCHAR, day TIMESTAMP, minute VARCHAR,
    bids BIGINT, rank1_bids BIGINT, rank2_bids BIGINT, rank3_bids BIGINT,
    bidders BIGINT, rank1_bidders BIGINT, rank2_bidders BIGINT, rank3_bidders BIGINT,
    auctions BIGINT, rank1_auctions BIGINT, rank2_auctions BIGINT, rank3_auctions BIGINT,
    PRIMARY KEY (channel, day)
);
CREATE TOPOLOGY q16 AS (
    CREATE STREAM bidder_day AS
        SELECT channel, bidder, window_start AS day, max(to_char(date_time, 'HH24:MI')) AS minute, count(*) AS bids,
            count(*) FILTER (WHERE price < 10000) AS rank1,
            count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2,
            count(*) FILTER (WHERE price >= 1000000) AS rank3
        FROM TUMBLE(bid, date_time, INTERVAL '1 day')
        GROUP BY channel, bidder, window_start;
    CREATE STREAM auction_day AS
        SELECT channel, auction, window_start AS day,
            count(*) FILTER (WHERE price < 10000) AS rank1,
            count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2,
            count(*) FILTER (WHERE price >= 1000000) AS rank3
        FROM TUMBLE(bid, date_time, INTERVAL '1 day')
        GROUP BY channel, auction, window_start;
    INSERT INTO channel_statistics
            (channel, day, minute, bids, rank1_bids, rank2_bids, rank3_bids,
            bidders, rank1_bidders, rank2_bidders, rank3_bidders)
        SELECT channel, day, max(minute), sum(bids), sum(rank1), sum(rank2), sum(rank3),
            count(*), count(nullif(rank1, 0)), count(nullif(rank2, 0)), count(nullif(rank3, 0))
        FROM bidder_day GROUP BY channel, day
        ON CONFLICT (channel, day) DO UPDATE SET minute = EXCLUDED.minute, bids = EXCLUDED.bids,
            rank1_bids = EXCLUDED.rank1_bids, rank2_bids = EXCLUDED.rank2_bids, rank3_bids = EXCLUDED.rank3_bids,
            bidders = EXCLUDED.bidders, rank1_bidders = EXCLUDED.rank1_bidders,
            rank2_bidders = EXCLUDED.rank2_bidders, rank3_bidders = EXCLUDED.rank3_bidders;
    INSERT INTO channel_statistics (channel, day, auctions, rank1_auctions, rank2_auctions, rank3_auctions)
        SELECT channel, day, count(*), count(nullif(rank1, 0)), count(nullif(rank2, 0)), count(nullif(rank3, 0))
        FROM auction_day GROUP BY channel, day
        ON CONFLICT (channel, day) DO UPDATE SET auctions = EXCLUDED.auctions, rank1_auctions = EXCLUDED.rank1_auctions,
            rank2_auctions = EXCLUDED.rank2_auctions, rank3_auctions = EXCLUDED.rank3_auctions
);

-- q17: prices of each auction and day.
CREATE TABLE auction_statistics (
    auction BIGINT, day TIMESTAMP,
    bids BIGINT, rank1_bids BIGINT, rank2_bids BIGINT, rank3_bids BIGINT,
    least BIGINT, most BIGINT, mean DECIMAL(23, 3), total BIGINT,
    PRIMARY KEY (auction, day)
);
CREATE TOPOLOGY q17 AS (
    INSERT INTO auction_statistics
        SELECT auction, window_start,
            count(*),
            count(*) FILTER (WHERE price < 10000),
            count(*) FILTER (WHERE price >= 10000 AND price < 1000000),
            count(*) FILTER (WHERE price >= 1000000),
            min(price), max(price), avg(price), sum(price)
        FROM TUMBLE(bid, date_time, INTERVAL '1 day')
        GROUP BY auction, window_start
);

-- q18: the last bid of each bidder on each auction.
CREATE TABLE last_bid (
    bidder BIGINT, auction BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, date_time TIMESTAMP, extra VARCHAR,
    PRIMARY KEY (bidder, auction)
);
CREATE TOPOLOGY q18 AS (
    INSERT INTO last_bid
        SELECT bidder, auction, price, channel, url, date_time, extra
        FROM (SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS place FROM bid) ranked
        WHERE place = 1
        ON CONFLICT (bidder, auction) DO UPDATE SET price = EXCLUDED.price, channel = EXCLUDED.channel,
            url = EXCLUDED.url, date_time = EXCLUDED.date_time, extra = EXCLUDED.extra
);

-- q19: the ten highest bids on each auction; of equal ones the first.
CREATE TABLE top_bid (
    auction BIGINT, place BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP, PRIMARY KEY (auction, place)
);
CREATE TOPOLOGY q19 AS (
    INSERT INTO top_bid
        SELECT auction, place, bidder, price, date_time
        FROM (SELECT auction, bidder, price, date_time,
                row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS place
            FROM bid) ranked
        WHERE place <= 10
        ON CONFLICT (auction, place) DO UPDATE SET bidder = EXCLUDED.bidder, price = EXCLUDED.price,
            date_time = EXCLUDED.date_time
);

-- q20: the bids on auctions of a category, with what is known of these. Nothing bounds the time between a bid and its auction
-- but what is said here; 'infinity' would buffer all of them for ever.
CREATE TABLE category_bid (
    auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP, seller BIGINT, opened TIMESTAMP, expires TIMESTAMP
);
CREATE TOPOLOGY q20 WITH (merge = 'event_time', state_ttl = '1 minute') AS (
    CREATE STREAM category_auction AS SELECT id, seller, date_time, expires FROM auction WHERE category = 10;
    INSERT INTO category_bid
        SELECT b.auction, b.bidder, b.price, b.date_time, a.seller, a.date_time, a.expires
        FROM bid b JOIN category_auction a ON a.id = b.auction
);

-- q21: bids with the number of their channel: some are known by name, others have it in their address.
CREATE TABLE channel_bid (auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, channel_id VARCHAR);
CREATE TOPOLOGY q21 AS (
    CREATE STREAM numbered AS
        SELECT auction, bidder, price, channel,
            CASE lower(channel)
                WHEN 'apple' THEN '0'
                WHEN 'google' THEN '1'
                WHEN 'facebook' THEN '2'
                WHEN 'baidu' THEN '3'
                ELSE nullif(split_part(split_part(url, '&channel_id=', 2), '&', 1), '')
            END AS channel_id
        FROM bid;
    INSERT INTO channel_bid SELECT * FROM numbered WHERE channel_id IS NOT NULL
);

-- q22: bids with the three folders of their address.
CREATE TABLE folder_bid (
    auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, folder1 VARCHAR, folder2 VARCHAR, folder3 VARCHAR
);
CREATE TOPOLOGY q22 AS (
    INSERT INTO folder_bid
        SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5), split_part(url, '/', 6)
        FROM bid
);
