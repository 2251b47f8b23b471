-- Payments by card: each is one transaction, which is refused if it would exceed the credit of the card.

CREATE SOURCE payment (
    at TIMESTAMP NOT NULL, card INT NOT NULL, amount DECIMAL(9, 2) NOT NULL, country VARCHAR NOT NULL,
    WATERMARK FOR at AS at - INTERVAL '1 minute'
) WITH (connector = 'generator', rows = 20000, step = '1 second',
    card.cardinality = 200, amount.cardinality = 50000, country.cardinality = 30);

CREATE TABLE card (id INT PRIMARY KEY, credit DECIMAL(9, 2));
INSERT INTO card SELECT i, 20000 FROM generate_series(0, 199) g(i);

CREATE TABLE account (card INT PRIMARY KEY, payments BIGINT, spent DECIMAL(12, 2), highest DECIMAL(9, 2));
CREATE TABLE alarm (card INT PRIMARY KEY, payments BIGINT, spent DECIMAL(12, 2), credit DECIMAL(9, 2));
CREATE TABLE spree (
    card INT, began TIMESTAMP, ended TIMESTAMP, payments BIGINT, amount DECIMAL(19, 2), countries BIGINT,
    PRIMARY KEY (card, began)
);

CREATE TABLE probe (
    card INT, tried TIMESTAMP, taken TIMESTAMP, payments BIGINT, small DECIMAL(9, 2), large DECIMAL(9, 2),
    PRIMARY KEY (card, tried)
);

-- After a power failure it goes on behind the last payment that was durable, as with any durability.
CREATE TOPOLOGY fraud COMMIT EACH ROW ON ERROR ABORT WITH (durability = 'none') AS (
    -- What a card has spent so far.
    INSERT INTO account AS a SELECT card, 1, amount, amount FROM payment
        ON CONFLICT (card) DO UPDATE SET payments = a.payments + 1, spent = a.spent + EXCLUDED.spent,
            highest = greatest(a.highest, EXCLUDED.highest);

    -- A card that has spent nine tenths of its credit.
    INSERT INTO alarm
        SELECT a.card, a.payments, a.spent, c.credit
        FROM CHANGES(account) FOR EACH COMMIT AS a JOIN card c ON c.id = a.card
        WHERE a.spent > 0.9 * c.credit
        ON CONFLICT (card) DO NOTHING;

    -- Several payments by one card in several countries, within a few minutes of one another.
    INSERT INTO spree
        SELECT card, window_start, window_end, count(*), sum(amount), count(DISTINCT country)
        FROM SESSION(payment, at, INTERVAL '3 minutes')
        GROUP BY card, window_start, window_end
        HAVING count(DISTINCT country) > 2;

    -- A small payment, as if to see whether the card works, and a large one within ten minutes.
    INSERT INTO probe
        SELECT card, tried, taken, payments, small, large
        FROM payment MATCH_RECOGNIZE (
            PARTITION BY card
            ORDER BY at
            MEASURES first(at) AS tried, last(at) AS taken, count(*) AS payments, s.amount AS small, l.amount AS large
            PATTERN (s other*? l) WITHIN INTERVAL '10 minutes'
            DEFINE s AS amount < 20, l AS amount > 300 AND amount > 20 * s.amount
        );

    -- A payment beyond the credit leaves nothing, in none of the tables.
    ABORT WHEN EXISTS (SELECT 1 FROM CHANGES(account) a JOIN card c ON c.id = a.card WHERE a.spent > c.credit);
);

-- Cards that need a call.
SELECT card, spent, credit FROM alarm ORDER BY spent DESC, card LIMIT 10;
