-- Who opened an auction within the ten seconds in which he signed in.
CREATE TABLE result (person BIGINT, from_us BIGINT, PRIMARY KEY (person, from_us));
CREATE TOPOLOGY race COMMIT EVERY 10000 ROWS WITH (durability = 'group:10ms', merge = 'event_time') AS (
    CREATE STREAM new_person AS
        SELECT person, window_start, window_end FROM TUMBLE(person, date_time, INTERVAL '10 seconds')
        GROUP BY person, window_start, window_end;
    CREATE STREAM selling AS
        SELECT seller, window_start, window_end FROM TUMBLE(auction, date_time, INTERVAL '10 seconds')
        GROUP BY seller, window_start, window_end;
    INSERT INTO result
        SELECT p.person, cast(extract(epoch FROM p.window_start) * 1000000 AS BIGINT)
        FROM new_person p JOIN selling a
            ON a.seller = p.person AND a.window_start = p.window_start AND a.window_end = p.window_end
);
