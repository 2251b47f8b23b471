-- The tables of the Star Schema Benchmark. Prices are in cents, dates are numbers such as 19971231, as the generators write them.

CREATE TABLE customer (
    c_custkey INT NOT NULL,
    c_name VARCHAR NOT NULL,
    c_address VARCHAR NOT NULL,
    c_city VARCHAR NOT NULL,
    c_nation VARCHAR NOT NULL,
    c_region VARCHAR NOT NULL,
    c_phone VARCHAR NOT NULL,
    c_mktsegment VARCHAR NOT NULL,
    CONSTRAINT customer_pkey PRIMARY KEY (c_custkey)
);

CREATE TABLE supplier (
    s_suppkey INT NOT NULL,
    s_name VARCHAR NOT NULL,
    s_address VARCHAR NOT NULL,
    s_city VARCHAR NOT NULL,
    s_nation VARCHAR NOT NULL,
    s_region VARCHAR NOT NULL,
    s_phone VARCHAR NOT NULL,
    CONSTRAINT supplier_pkey PRIMARY KEY (s_suppkey)
);

CREATE TABLE part (
    p_partkey INT NOT NULL,
    p_name VARCHAR NOT NULL,
    p_mfgr VARCHAR NOT NULL,
    p_category VARCHAR NOT NULL,
    p_brand1 VARCHAR NOT NULL,
    p_color VARCHAR NOT NULL,
    p_type VARCHAR NOT NULL,
    p_size INT NOT NULL,
    p_container VARCHAR NOT NULL,
    CONSTRAINT part_pkey PRIMARY KEY (p_partkey)
);

CREATE TABLE date (
    d_datekey INT NOT NULL,
    d_date VARCHAR NOT NULL,
    d_dayofweek VARCHAR NOT NULL,
    d_month VARCHAR NOT NULL,
    d_year INT NOT NULL,
    d_yearmonthnum INT NOT NULL,
    d_yearmonth VARCHAR NOT NULL,
    d_daynuminweek INT NOT NULL,
    d_daynuminmonth INT NOT NULL,
    d_daynuminyear INT NOT NULL,
    d_monthnuminyear INT NOT NULL,
    d_weeknuminyear INT NOT NULL,
    d_sellingseason VARCHAR NOT NULL,
    d_lastdayinweekfl INT NOT NULL,
    d_lastdayinmonthfl INT NOT NULL,
    d_holidayfl INT NOT NULL,
    d_weekdayfl INT NOT NULL,
    CONSTRAINT date_pkey PRIMARY KEY (d_datekey)
);

-- Without a key: its lines may come in any order, and more than once.
CREATE TABLE lineorder (
    lo_orderkey BIGINT NOT NULL,
    lo_linenumber INT NOT NULL,
    lo_custkey INT NOT NULL,
    lo_partkey INT NOT NULL,
    lo_suppkey INT NOT NULL,
    lo_orderdate INT NOT NULL,
    lo_orderpriority VARCHAR NOT NULL,
    lo_shippriority INT NOT NULL,
    lo_quantity INT NOT NULL,
    lo_extendedprice INT NOT NULL,
    lo_ordtotalprice INT NOT NULL,
    lo_discount INT NOT NULL,
    lo_revenue INT NOT NULL,
    lo_supplycost INT NOT NULL,
    lo_tax INT NOT NULL,
    lo_commitdate INT NOT NULL,
    lo_shipmode VARCHAR NOT NULL
);
