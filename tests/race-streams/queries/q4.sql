-- The winning bids of each category: the highest of each auction while it was open.
CREATE TABLE winning_bid (auction BIGINT PRIMARY KEY, category BIGINT, price BIGINT);
CREATE MATERIALIZED VIEW result AS
    SELECT category, count(*) AS auctions, sum(price) AS prices FROM winning_bid GROUP BY category;
CREATE TOPOLOGY race COMMIT EVERY 10000 ROWS WITH (durability = 'group:10ms', merge = 'event_time') AS (
    CREATE STREAM valid_bid AS
        SELECT a.auction, a.category, b.price, b.date_time AS at
        FROM auction a JOIN bid b ON b.auction = a.auction AND b.date_time BETWEEN a.date_time AND a.expires;
    INSERT INTO winning_bid
        SELECT auction, category, price
        FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, at) AS place FROM valid_bid) ranked
        WHERE place = 1
        ON CONFLICT (auction) DO UPDATE SET category = EXCLUDED.category, price = EXCLUDED.price
);
