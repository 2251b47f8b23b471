-- Every bid, as it comes.
CREATE TABLE result (auction BIGINT, bidder BIGINT, price BIGINT, at_us BIGINT);
CREATE TOPOLOGY race COMMIT EVERY 10000 ROWS WITH (durability = 'group:10ms') AS (
    INSERT INTO result SELECT auction, bidder, price, at_us FROM bid
);
