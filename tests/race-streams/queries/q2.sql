-- The bids on some auctions.
CREATE TABLE result (auction BIGINT, price BIGINT);
CREATE TOPOLOGY race COMMIT EVERY 10000 ROWS WITH (durability = 'group:10ms') AS (
    INSERT INTO result SELECT auction, price FROM bid WHERE auction % 123 = 0
);
