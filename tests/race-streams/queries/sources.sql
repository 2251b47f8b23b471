CREATE SOURCE bid (
    auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, date_time TIMESTAMP NOT NULL, at_us BIGINT NOT NULL,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds'
) WITH (connector = 'file', path = '{input}/bid.csv') FORMAT PLAIN ENCODE CSV;

CREATE SOURCE auction (
    auction BIGINT NOT NULL, seller BIGINT NOT NULL, category BIGINT NOT NULL, date_time TIMESTAMP NOT NULL,
    expires TIMESTAMP NOT NULL, at_us BIGINT NOT NULL, expires_us BIGINT NOT NULL,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds'
) WITH (connector = 'file', path = '{input}/auction.csv') FORMAT PLAIN ENCODE CSV;

CREATE SOURCE person (
    person BIGINT NOT NULL, name VARCHAR NOT NULL, state VARCHAR NOT NULL, date_time TIMESTAMP NOT NULL, at_us BIGINT NOT NULL,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds'
) WITH (connector = 'file', path = '{input}/person.csv') FORMAT PLAIN ENCODE CSV;
