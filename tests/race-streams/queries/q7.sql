-- The highest price of each ten seconds.
CREATE TABLE result (from_us BIGINT PRIMARY KEY, price BIGINT);
CREATE TOPOLOGY race COMMIT EVERY 10000 ROWS WITH (durability = 'group:10ms') AS (
    INSERT INTO result
        SELECT cast(extract(epoch FROM window_start) * 1000000 AS BIGINT), max(price)
        FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')
        GROUP BY window_start
);
