-- How often a person bids in each ten seconds, and for how much in all.
CREATE TABLE result (bidder BIGINT, from_us BIGINT, bids BIGINT, prices BIGINT, PRIMARY KEY (bidder, from_us));
CREATE TOPOLOGY race COMMIT EVERY 10000 ROWS WITH (durability = 'group:10ms') AS (
    INSERT INTO result
        SELECT bidder, cast(extract(epoch FROM window_start) * 1000000 AS BIGINT), count(*), cast(sum(price) AS BIGINT)
        FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')
        GROUP BY bidder, window_start
);
