-- Every bid, with its price in euros of three digits.
CREATE TABLE result (auction BIGINT, bidder BIGINT, thousandths BIGINT, at_us BIGINT);
CREATE TOPOLOGY race COMMIT EVERY 10000 ROWS WITH (durability = 'group:10ms') AS (
    INSERT INTO result SELECT auction, bidder, 908 * price, at_us FROM bid
);
