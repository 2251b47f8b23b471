-- The questions of nexmark.sql asked again, as queries over tables of all events. When all topologies have ended, each view
-- here has the rows of the table (or view) whose name it begins with:
--
--     SELECT * FROM hot_auction EXCEPT SELECT * FROM hot_auction_expected;

CREATE TABLE bids (
    date_time TIMESTAMP PRIMARY KEY, auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, extra VARCHAR
);
CREATE TOPOLOGY all_bids AS (
    INSERT INTO bids SELECT date_time, auction, bidder, price, channel, url, extra FROM bid
);

CREATE TABLE auctions (
    date_time TIMESTAMP PRIMARY KEY, id BIGINT, seller BIGINT, category BIGINT, expires TIMESTAMP
);
CREATE TABLE people (date_time TIMESTAMP PRIMARY KEY, id BIGINT, name VARCHAR, city VARCHAR, state VARCHAR);
CREATE TOPOLOGY all_auctions AS (INSERT INTO auctions SELECT date_time, id, seller, category, expires FROM auction);
CREATE TOPOLOGY all_people AS (INSERT INTO people SELECT date_time, id, name, city, state FROM person);

-- q0
CREATE VIEW passed_bid_expected AS SELECT auction, bidder, price, date_time, extra FROM bids;

-- q1
CREATE VIEW euro_bid_expected AS
    SELECT auction, bidder, CAST(price * 0.908 AS DECIMAL(23, 3)) AS price, date_time, extra FROM bids;

-- q2
CREATE VIEW chosen_bid_expected AS SELECT auction, price FROM bids WHERE auction / 123 * 123 = auction;

-- q3
CREATE VIEW local_offer_expected AS
    SELECT a.id AS auction, p.id AS seller, p.name, p.city, p.state FROM auctions a JOIN people p ON p.id = a.seller
    WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA');

-- q5
CREATE VIEW hot_auction_expected AS
    SELECT window_start, window_start + INTERVAL '10 seconds' AS window_end, auction, bids
    FROM (SELECT window_start, auction, count(*) AS bids,
            row_number() OVER (PARTITION BY window_start ORDER BY count(*) DESC, auction) AS place
        FROM (SELECT auction, date_bin(INTERVAL '2 seconds', date_time, TIMESTAMP '1970-01-01 00:00:00')
                - before * INTERVAL '2 seconds' AS window_start
            FROM bids CROSS JOIN generate_series(0, 4) windows(before)) hops
        GROUP BY window_start, auction) ranked
    WHERE place = 1;

-- q7
CREATE VIEW highest_bid_expected AS
    SELECT window_start, price, auction, bidder, date_time
    FROM (SELECT *, row_number() OVER (PARTITION BY window_start ORDER BY price DESC, date_time) AS place
        FROM (SELECT *, date_bin(INTERVAL '10 seconds', date_time, TIMESTAMP '1970-01-01 00:00:00') AS window_start
            FROM bids) binned) ranked
    WHERE place = 1;

-- q8
CREATE VIEW new_seller_expected AS
    SELECT DISTINCT p.id, p.name, date_bin(INTERVAL '10 seconds', p.date_time, TIMESTAMP '1970-01-01 00:00:00') AS window_start
    FROM people p JOIN auctions a ON a.seller = p.id
        AND date_bin(INTERVAL '10 seconds', a.date_time, TIMESTAMP '1970-01-01 00:00:00')
            = date_bin(INTERVAL '10 seconds', p.date_time, TIMESTAMP '1970-01-01 00:00:00');

-- q9
CREATE VIEW winning_bid_expected AS
    SELECT id AS auction, seller, category, expires, bidder, price, at
    FROM (SELECT a.id, a.seller, a.category, a.expires, b.bidder, b.price, b.date_time AS at,
            row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) AS place
        FROM auctions a JOIN bids b ON b.auction = a.id AND b.date_time >= a.date_time AND b.date_time <= a.expires) ranked
    WHERE place = 1;

-- q4
CREATE VIEW category_price_expected AS
    SELECT category, avg(price) AS price FROM winning_bid_expected GROUP BY category;

-- q6
CREATE VIEW seller_price_expected AS
    SELECT seller, avg(price) AS price
    FROM (SELECT *, rank() OVER (PARTITION BY seller ORDER BY expires DESC, auction DESC) AS place
        FROM winning_bid_expected) ranked
    WHERE place < 11
    GROUP BY seller;

-- q11
CREATE VIEW bidding_session_expected AS
    SELECT bidder, min(date_time) AS began, max(date_time) + INTERVAL '10 seconds' AS ended, count(*) AS bids
    FROM (SELECT *, sum(begins) OVER (PARTITION BY bidder ORDER BY date_time) AS number
        FROM (SELECT bidder, date_time, CASE WHEN date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time)
                < INTERVAL '10 seconds' THEN 0 ELSE 1 END AS begins
            FROM bids) pauses) numbered
    GROUP BY bidder, number;

-- q12
CREATE VIEW bidder_activity_expected AS
    SELECT bidder, window_start, window_start + INTERVAL '10 seconds' AS window_end, count(*) AS bids
    FROM (SELECT bidder, date_bin(INTERVAL '10 seconds', date_time, TIMESTAMP '1970-01-01 00:00:00') AS window_start
        FROM bids) binned
    GROUP BY bidder, window_start;

-- q13
CREATE VIEW enriched_bid_expected AS
    SELECT auction, bidder, price, date_time, 'value ' || (auction % 10000) AS value FROM bids;

-- q14
CREATE VIEW computed_bid_expected AS
    SELECT auction, bidder, CAST(price * 0.908 AS DECIMAL(23, 3)) AS price,
        CASE
            WHEN date_time::time < '07:00:00' OR date_time::time >= '20:00:00' THEN 'night'
            WHEN date_time::time >= '08:00:00' AND date_time::time < '19:00:00' THEN 'day'
            ELSE 'other'
        END AS time_of_day,
        date_time, extra, length(regexp_replace(extra, '[^c]', '', 'g')) AS c
    FROM bids
    WHERE price * 0.908 > 1000000 AND price * 0.908 < 50000000;

-- q15
CREATE VIEW daily_statistics_expected AS
    SELECT date_trunc('day', date_time) AS day,
        count(*) AS bids,
        count(*) FILTER (WHERE price < 10000) AS rank1_bids,
        count(*) FILTER (WHERE price BETWEEN 10000 AND 999999) AS rank2_bids,
        count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
        count(DISTINCT bidder) AS bidders,
        count(DISTINCT CASE WHEN price < 10000 THEN bidder END) AS rank1_bidders,
        count(DISTINCT CASE WHEN price BETWEEN 10000 AND 999999 THEN bidder END) AS rank2_bidders,
        count(DISTINCT CASE WHEN price >= 1000000 THEN bidder END) AS rank3_bidders,
        count(DISTINCT auction) AS auctions,
        count(DISTINCT CASE WHEN price < 10000 THEN auction END) AS rank1_auctions,
        count(DISTINCT CASE WHEN price BETWEEN 10000 AND 999999 THEN auction END) AS rank2_auctions,
        count(DISTINCT CASE WHEN price >= 1000000 THEN auction END) AS rank3_auctions
    FROM bids
    GROUP BY 1;

-- q16
CREATE VIEW channel_statistics_expected AS
    SELECT channel, date_trunc('day', date_time) AS day,
        to_char(max(date_time), 'HH24:MI') AS minute,
        count(*) AS bids,
        count(*) FILTER (WHERE price < 10000) AS rank1_bids,
        count(*) FILTER (WHERE price BETWEEN 10000 AND 999999) AS rank2_bids,
        count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
        count(DISTINCT bidder) AS bidders,
        count(DISTINCT CASE WHEN price < 10000 THEN bidder END) AS rank1_bidders,
        count(DISTINCT CASE WHEN price BETWEEN 10000 AND 999999 THEN bidder END) AS rank2_bidders,
        count(DISTINCT CASE WHEN price >= 1000000 THEN bidder END) AS rank3_bidders,
        count(DISTINCT auction) AS auctions,
        count(DISTINCT CASE WHEN price < 10000 THEN auction END) AS rank1_auctions,
        count(DISTINCT CASE WHEN price BETWEEN 10000 AND 999999 THEN auction END) AS rank2_auctions,
        count(DISTINCT CASE WHEN price >= 1000000 THEN auction END) AS rank3_auctions
    FROM bids
    GROUP BY 1, 2;

-- q17
CREATE VIEW auction_statistics_expected AS
    SELECT auction, date_trunc('day', date_time) AS day,
        count(*) AS bids,
        count(*) FILTER (WHERE price < 10000) AS rank1_bids,
        count(*) FILTER (WHERE price BETWEEN 10000 AND 999999) AS rank2_bids,
        count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
        min(price) AS least, max(price) AS most, CAST(avg(price) AS DECIMAL(23, 3)) AS mean, sum(price) AS total
    FROM bids
    GROUP BY 1, 2;

-- q18
CREATE VIEW last_bid_expected AS
    SELECT bidder, auction, price, channel, url, date_time, extra
    FROM (SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS place FROM bids) ranked
    WHERE place = 1;

-- q19
CREATE VIEW top_bid_expected AS
    SELECT auction, place, bidder, price, date_time
    FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS place FROM bids) ranked
    WHERE place <= 10;

-- q20
CREATE VIEW category_bid_expected AS
    SELECT b.auction, b.bidder, b.price, b.date_time, a.seller, a.date_time AS opened, a.expires
    FROM bids b JOIN auctions a ON a.id = b.auction
    WHERE a.category = 10
        AND a.date_time BETWEEN b.date_time - INTERVAL '1 minute' AND b.date_time + INTERVAL '1 minute';

-- q21
CREATE VIEW channel_bid_expected AS
    SELECT auction, bidder, price, channel,
        CASE channel WHEN 'Apple' THEN '0' WHEN 'Google' THEN '1' WHEN 'Facebook' THEN '2' WHEN 'Baidu' THEN '3'
            ELSE regexp_replace(url, '.*&channel_id=', '') END AS channel_id
    FROM bids
    WHERE channel NOT LIKE 'channel%' OR url LIKE '%channel_id%';

-- q22
CREATE VIEW folder_bid_expected AS
    SELECT auction, bidder, price, channel,
        substr(url, 25, 5) AS folder1, substr(url, 31, 5) AS folder2, substr(url, 37, 5) AS folder3
    FROM bids;
