-- The auction with the most bids of the last ten seconds, every two seconds; of several, the one that is older.
CREATE TABLE result (from_us BIGINT PRIMARY KEY, auction BIGINT, bids BIGINT);
CREATE TOPOLOGY race COMMIT EVERY 10000 ROWS WITH (durability = 'group:10ms') AS (
    CREATE STREAM auction_bids AS
        SELECT auction, window_start, window_end, count(*) AS bids
        FROM HOP(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds')
        GROUP BY auction, window_start, window_end;
    INSERT INTO result
        SELECT cast(extract(epoch FROM window_start) * 1000000 AS BIGINT), first_value(auction ORDER BY bids DESC, auction),
            max(bids)
        FROM auction_bids
        GROUP BY window_start, window_end
);
