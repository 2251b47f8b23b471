-- Who sells things of a category in three states. A person may sign in after the first auction.
CREATE TABLE seller (person BIGINT PRIMARY KEY);
CREATE TABLE offer (auction BIGINT PRIMARY KEY, seller BIGINT);
CREATE INDEX offer_by_seller ON offer (seller);
CREATE MATERIALIZED VIEW result AS SELECT o.auction, s.person FROM offer o JOIN seller s ON s.person = o.seller;
CREATE TOPOLOGY race COMMIT EVERY 10000 ROWS WITH (durability = 'group:10ms') AS (
    INSERT INTO seller SELECT person FROM person WHERE state IN ('OR', 'ID', 'CA');
    INSERT INTO offer SELECT auction, seller FROM auction WHERE category = 10
);
