-- The winning bids of the last ten auctions of each seller, by the time at which they expire.
CREATE TABLE winning_bid (auction BIGINT PRIMARY KEY, seller BIGINT, expires TIMESTAMP, price BIGINT);
CREATE INDEX winning_bid_by_seller ON winning_bid (seller);
CREATE MATERIALIZED VIEW result AS
    SELECT seller, count(*) AS auctions, sum(price) AS prices
    FROM (SELECT seller, price, row_number() OVER (PARTITION BY seller ORDER BY expires DESC, auction DESC) AS place
        FROM winning_bid) ranked
    WHERE place <= 10
    GROUP BY seller;
CREATE TOPOLOGY race COMMIT EVERY 10000 ROWS WITH (durability = 'group:10ms', merge = 'event_time') AS (
    CREATE STREAM valid_bid AS
        SELECT a.auction, a.seller, a.expires, b.price, b.date_time AS at
        FROM auction a JOIN bid b ON b.auction = a.auction AND b.date_time BETWEEN a.date_time AND a.expires;
    INSERT INTO winning_bid
        SELECT auction, seller, expires, price
        FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, at) AS place FROM valid_bid) ranked
        WHERE place = 1
        ON CONFLICT (auction) DO UPDATE SET seller = EXCLUDED.seller, expires = EXCLUDED.expires, price = EXCLUDED.price
);
