-- Uniform tuples, and the columns of TPC-H's lineitem that are selected by.

CREATE TABLE uniform (
    id BIGINT NOT NULL PRIMARY KEY,
    a0 INT NOT NULL,
    a1 INT NOT NULL,
    a2 INT NOT NULL,
    a3 INT NOT NULL,
    a4 INT NOT NULL,
    a5 INT NOT NULL,
    a6 INT NOT NULL,
    a7 INT NOT NULL,
    a8 INT NOT NULL,
    a9 INT NOT NULL,
    value BIGINT NOT NULL
);

CREATE TABLE lineitem (
    l_shipdate DATE NOT NULL,
    l_discount DECIMAL(15, 2) NOT NULL,
    l_quantity INT NOT NULL,
    l_suppkey INT NOT NULL,
    l_tax DECIMAL(15, 2) NOT NULL,
    l_partkey INT NOT NULL,
    l_extendedprice DECIMAL(15, 2) NOT NULL
);
