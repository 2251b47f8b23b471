-- Smart metering: what households use, what transformers and generators do, and what does not add up.
--
-- `entresol demo smart-metering` runs this script on a million readings. By itself it reads the day of two meters that
-- are in the folder smart-metering beside it; run it where the folder "examples" is:
--
--     entresol shell DIR < examples/smart-metering.sql
--
-- It may be run again: what is there stays, and the topologies go on where they were.

-- Each meter reads, every minute, the power that its household draws, and the voltage. Some values are missing.
CREATE SOURCE IF NOT EXISTS household_reading (
    at TIMESTAMP NOT NULL, meter INT NOT NULL, feeder VARCHAR NOT NULL, kw DOUBLE, voltage DOUBLE,
    WATERMARK FOR at AS at
) WITH (connector = 'file', path = 'examples/smart-metering/household.csv', future_limit = '36500 days');

-- Transformers report their load and the temperature of their oil, generators their temperature.
CREATE SOURCE IF NOT EXISTS infrastructure_reading (
    at TIMESTAMP NOT NULL, asset VARCHAR NOT NULL, quantity VARCHAR NOT NULL, reading DOUBLE,
    WATERMARK FOR at AS at
) WITH (connector = 'file', path = 'examples/smart-metering/infrastructure.csv', future_limit = '36500 days');

-- Engineers revise, now and then, between which limits a quantity is normal.
CREATE SOURCE IF NOT EXISTS revision (
    valid_from TIMESTAMP NOT NULL, asset VARCHAR NOT NULL, quantity VARCHAR NOT NULL,
    low DOUBLE NOT NULL, high DOUBLE NOT NULL, per_demand_max DOUBLE, revision INT NOT NULL,
    WATERMARK FOR valid_from AS valid_from
) WITH (connector = 'file', path = 'examples/smart-metering/specification.csv', future_limit = '36500 days');

-- Every meter, half hour by half hour; and the households behind each feeder.
CREATE TABLE IF NOT EXISTS meter (
    meter INT, window_start TIMESTAMP, feeder VARCHAR, readings BIGINT, measured BIGINT,
    mean_kw DOUBLE, max_kw DOUBLE, min_voltage DOUBLE, max_voltage DOUBLE,
    PRIMARY KEY (meter, window_start)
);
CREATE TABLE IF NOT EXISTS household (
    feeder VARCHAR, window_start TIMESTAMP, meters BIGINT, readings BIGINT,
    demand_kw DOUBLE, min_voltage DOUBLE, max_voltage DOUBLE,
    PRIMARY KEY (feeder, window_start)
);

-- The limits in force; every quantity, half hour by half hour, with the limits that were in force; and the latest of each.
CREATE TABLE IF NOT EXISTS specification (
    asset VARCHAR, quantity VARCHAR, low DOUBLE, high DOUBLE, per_demand_max DOUBLE, revision INT, valid_from TIMESTAMP,
    PRIMARY KEY (asset, quantity)
);
CREATE TABLE IF NOT EXISTS infrastructure (
    asset VARCHAR, quantity VARCHAR, window_start TIMESTAMP, readings BIGINT, measured BIGINT,
    mean DOUBLE, minimum DOUBLE, maximum DOUBLE, low DOUBLE, high DOUBLE, per_demand_max DOUBLE, revision INT,
    PRIMARY KEY (asset, quantity, window_start)
);
CREATE TABLE IF NOT EXISTS latest (
    asset VARCHAR, quantity VARCHAR, window_start TIMESTAMP, readings BIGINT, measured BIGINT,
    mean DOUBLE, minimum DOUBLE, maximum DOUBLE,
    PRIMARY KEY (asset, quantity)
);

-- What is not normal. Its changes are logged, for those who subscribe to them.
CREATE TABLE IF NOT EXISTS alarms (
    asset VARCHAR, quantity VARCHAR, window_start TIMESTAMP, mean DOUBLE, low DOUBLE, high DOUBLE, demand_kw DOUBLE,
    reason VARCHAR, revision INT,
    PRIMARY KEY (asset, quantity, window_start)
) WITH (changes = '1 day');

-- Each feeder from both sides: the demand that the meters behind it explain, and the load of its transformer.
CREATE TABLE IF NOT EXISTS feeder_flow (
    feeder VARCHAR, window_start TIMESTAMP, side VARCHAR, kw DECIMAL(14, 6),
    PRIMARY KEY (feeder, window_start, side)
);

-- The balance of a half hour, once both sides are known: it appears in the commit that brings the second one.
CREATE MATERIALIZED VIEW IF NOT EXISTS feeder_balance WITH (changes = '1 day') AS
    SELECT feeder, window_start,
        sum(kw) FILTER (WHERE side = 'demand') AS demand_kw,
        sum(kw) FILTER (WHERE side = 'load') AS load_kw,
        sum(CASE side WHEN 'load' THEN kw ELSE -kw END) AS unexplained_kw
    FROM feeder_flow
    GROUP BY feeder, window_start
    HAVING count(*) = 2;

-- Households: a transaction is 500 readings, with the half hours that they close.
CREATE TOPOLOGY IF NOT EXISTS households COMMIT EVERY 500 ROWS AS (
    CREATE STREAM per_meter WITH (state_table = 'meter_open') AS
        SELECT meter, feeder, window_start, window_end, count(*) AS readings, count(kw) AS measured,
            avg(kw) AS mean_kw, max(kw) AS max_kw, min(voltage) AS min_voltage, max(voltage) AS max_voltage
        FROM TUMBLE(household_reading, at, INTERVAL '30 minutes')
        GROUP BY meter, feeder, window_start, window_end;

    INSERT INTO meter
        SELECT meter, window_start, feeder, readings, measured, mean_kw, max_kw, min_voltage, max_voltage
        FROM per_meter;

    CREATE STREAM per_feeder WITH (state_table = 'household_open') AS
        SELECT feeder, window_start, count(*) AS meters, sum(readings) AS readings, sum(mean_kw) AS demand_kw,
            min(min_voltage) AS min_voltage, max(max_voltage) AS max_voltage
        FROM per_meter
        GROUP BY feeder, window_start;

    INSERT INTO household
        SELECT feeder, window_start, meters, readings, demand_kw, min_voltage, max_voltage FROM per_feeder;

    INSERT INTO feeder_flow
        SELECT feeder, window_start, 'demand', demand_kw FROM per_feeder WHERE demand_kw IS NOT NULL;
);

-- Infrastructure: a transaction is what closes a half hour. Revisions and readings come in the order of their times, so a
-- half hour is judged by the limits that were in force when it ended.
CREATE TOPOLOGY IF NOT EXISTS infrastructure COMMIT ON WINDOW CLOSE WITH (merge = 'event_time') AS (
    INSERT INTO specification
        SELECT asset, quantity, low, high, per_demand_max, revision, valid_from FROM revision
        ON CONFLICT (asset, quantity) DO UPDATE SET low = EXCLUDED.low, high = EXCLUDED.high,
            per_demand_max = EXCLUDED.per_demand_max, revision = EXCLUDED.revision, valid_from = EXCLUDED.valid_from;

    CREATE STREAM channel WITH (state_table = 'infrastructure_open') AS
        SELECT asset, quantity, window_start, count(*) AS readings, count(reading) AS measured,
            avg(reading) AS mean, min(reading) AS minimum, max(reading) AS maximum
        FROM TUMBLE(infrastructure_reading, at, INTERVAL '30 minutes')
        GROUP BY asset, quantity, window_start;

    INSERT INTO infrastructure
        SELECT c.asset, c.quantity, c.window_start, c.readings, c.measured, c.mean, c.minimum, c.maximum,
            s.low, s.high, s.per_demand_max, s.revision
        FROM channel c LEFT JOIN specification s ON s.asset = c.asset AND s.quantity = c.quantity;

    INSERT INTO latest
        SELECT asset, quantity, window_start, readings, measured, mean, minimum, maximum FROM channel
        ON CONFLICT (asset, quantity) DO UPDATE SET window_start = EXCLUDED.window_start, readings = EXCLUDED.readings,
            measured = EXCLUDED.measured, mean = EXCLUDED.mean, minimum = EXCLUDED.minimum, maximum = EXCLUDED.maximum;

    INSERT INTO feeder_flow
        SELECT asset, window_start, 'load', mean FROM channel WHERE quantity = 'load' AND mean IS NOT NULL;

    -- What the transaction adds is judged in the same transaction.
    INSERT INTO alarms (asset, quantity, window_start, mean, low, high, reason, revision)
        SELECT asset, quantity, window_start, mean, low, high, CASE WHEN mean < low THEN 'below' ELSE 'above' END, revision
        FROM CHANGES(infrastructure) FOR EACH COMMIT
        WHERE mean NOT BETWEEN low AND high;
);

-- A load that is normal by itself may be more than the meters explain: each balance is judged once.
CREATE TOPOLOGY IF NOT EXISTS balances AS (
    INSERT INTO alarms
        SELECT i.asset, i.quantity, i.window_start, i.mean, i.low, i.high, b.demand_kw, 'above demand', i.revision
        FROM (SELECT *, 'load' AS quantity FROM CHANGES(feeder_balance)) AS b
            JOIN infrastructure i ON i.asset = b.feeder AND i.quantity = b.quantity AND i.window_start = b.window_start
        WHERE b.load_kw > i.per_demand_max * b.demand_kw AND i.mean BETWEEN i.low AND i.high;
);

-- The alarms so far.
SELECT window_start, asset, quantity, mean, reason FROM alarms ORDER BY window_start, asset, quantity LIMIT 10;
