-- Visits to a web site: who looks at which pages, hour by hour, and which are looked at most.

CREATE SOURCE click (
    at TIMESTAMP NOT NULL, visitor INT NOT NULL, page VARCHAR NOT NULL,
    WATERMARK FOR at AS at - INTERVAL '1 minute'
) WITH (connector = 'generator', rows = 100000, step = '700 milliseconds', visitor.cardinality = 500, page.cardinality = 40);

CREATE TABLE visit (
    visitor INT, began TIMESTAMP, ended TIMESTAMP, clicks BIGINT, pages BIGINT, first_page VARCHAR, last_page VARCHAR,
    PRIMARY KEY (visitor, began)
);
CREATE TABLE page_hour (page VARCHAR, hour TIMESTAMP, clicks BIGINT, visitors BIGINT, PRIMARY KEY (page, hour));

-- Always up to date: it changes in the commit that adds an hour.
CREATE MATERIALIZED VIEW page_total AS
    SELECT page, sum(clicks) AS clicks, count(*) AS hours FROM page_hour GROUP BY page;

CREATE TOPOLOGY clickstream COMMIT EVERY 5000 ROWS OR EVERY INTERVAL '100 milliseconds' AS (
    -- A visit ends when its visitor has not clicked for ten minutes.
    INSERT INTO visit
        SELECT visitor, window_start, window_end, count(*), count(DISTINCT page),
            first_value(page ORDER BY at), last_value(page ORDER BY at)
        FROM SESSION(click, at, INTERVAL '10 minutes')
        GROUP BY visitor, window_start, window_end;

    INSERT INTO page_hour
        SELECT page, window_start, count(*), count(DISTINCT visitor)
        FROM TUMBLE(click, at, INTERVAL '1 hour')
        GROUP BY page, window_start;
);

-- The ten pages with the most clicks so far.
SELECT page, clicks FROM page_total ORDER BY clicks DESC, page LIMIT 10;
