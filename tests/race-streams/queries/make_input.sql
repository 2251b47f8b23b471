CREATE SOURCE made_bid (
    auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, date_time TIMESTAMP NOT NULL
) WITH (connector = 'nexmark', entity = 'bid', events = {events});
CREATE SOURCE made_auction (
    id BIGINT NOT NULL, seller BIGINT NOT NULL, category BIGINT NOT NULL, date_time TIMESTAMP NOT NULL, expires TIMESTAMP NOT NULL
) WITH (connector = 'nexmark', entity = 'auction', events = {events});
CREATE SOURCE made_person (
    id BIGINT NOT NULL, name VARCHAR NOT NULL, state VARCHAR NOT NULL, date_time TIMESTAMP NOT NULL
) WITH (connector = 'nexmark', entity = 'person', events = {events});
CREATE SINK bid_file AS SELECT auction, bidder, price, date_time, cast(extract(epoch FROM date_time) * 1000000 AS BIGINT) AS at_us
    FROM made_bid
    WITH (connector = 'file', path = '{input}/bid.csv', durability = 'none') FORMAT PLAIN ENCODE CSV;
CREATE SINK auction_file AS SELECT id AS auction, seller, category, date_time, expires,
        cast(extract(epoch FROM date_time) * 1000000 AS BIGINT) AS at_us,
        cast(extract(epoch FROM expires) * 1000000 AS BIGINT) AS expires_us
    FROM made_auction
    WITH (connector = 'file', path = '{input}/auction.csv', durability = 'none') FORMAT PLAIN ENCODE CSV;
CREATE SINK person_file AS SELECT id AS person, name, state, date_time, cast(extract(epoch FROM date_time) * 1000000 AS BIGINT) AS at_us
    FROM made_person
    WITH (connector = 'file', path = '{input}/person.csv', durability = 'none') FORMAT PLAIN ENCODE CSV;
