"""SQL of a pipeline is checked without Spark: certain errors are found, valid SQL is accepted."""

import pytest

from penstock.spark.pipelines.sql_check import Tables, Unreadable, sql_problems

ORDERS: Tables = {
    "orders": ["id", "item", "total", "at", "customer", "lines", "_key", "_timestamp", "_headers"],
    "customers": ["name", "country"],
}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT item, sum(total) AS sum FROM orders GROUP BY item HAVING sum > 10 ORDER BY sum DESC",
        "SELECT * FROM orders",
        "SELECT ITEM, Total FROM Orders",
        "SELECT o.item, c.country FROM orders o JOIN customers AS c ON o.customer.name = c.name",
        "SELECT orders.customer.address.city FROM orders",
        "SELECT window.start, count(*) FROM orders GROUP BY window(at, '1 hour')",
        "SELECT window(at, '5 minutes') AS w, item, count(*) AS n FROM orders GROUP BY w, item",
        "WITH big AS (SELECT id, total * 2 AS twice FROM orders) SELECT id, twice FROM big WHERE twice > 5",
        "WITH t(a, b) AS (SELECT id, item FROM orders) SELECT a, b FROM t",
        "SELECT id, line.sku FROM orders LATERAL VIEW explode(lines) exploded AS line",
        "SELECT id, explode(lines) AS line FROM orders",
        "SELECT id, filter(lines, x -> x.price > 3) AS dear FROM orders",
        "SELECT aggregate(lines, 0, (acc, x) -> acc + x.price) AS sum FROM orders",
        "SELECT id, row_number() OVER (PARTITION BY item ORDER BY at) AS n FROM orders",
        "SELECT id, rank() OVER w AS r FROM orders WINDOW w AS (PARTITION BY item ORDER BY at)",
        "SELECT s.id FROM (SELECT id FROM orders) s",
        "SELECT id FROM orders WHERE item IN (SELECT name FROM customers)",
        "SELECT CAST(_key AS STRING) AS k, to_json(struct(*)) AS value FROM orders",
        "SELECT get_json_object(item, '$.a') AS a FROM orders",
        "SELECT id, CASE WHEN total > 5 THEN 'big' ELSE 'small' END AS size FROM orders",
        "SELECT item FROM orders UNION ALL SELECT name FROM customers",
        "FROM orders SELECT id",
        "SELECT id FROM orders TABLESAMPLE (10 PERCENT)",
        "SELECT * FROM orders PIVOT (sum(total) FOR item IN ('a', 'b'))",
        "SELECT id, posexplode(lines) AS (pos, line) FROM orders",
        "VALUES (1, 2)",
        "SELECT id FROM range(10)",
        "SELECT transform(lines, l -> named_struct('a', l.price)) FROM orders",
        "SELECT current_timestamp(), current_date, id FROM orders",
    ],
)
def test_sql_that_spark_can_run_is_accepted(sql: str) -> None:
    assert list(sql_problems(sql, ORDERS)) == []


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT itm FROM orders", "a column 'itm' that no source has; did you mean 'item'?"),
        ("SELECT id FROM orders WHERE totl > 5", "a column 'totl' that no source has; did you mean 'total'?"),
        ("SELECT id FROM order", "a table 'order' that is none of the sources; did you mean 'orders'?"),
        ("SELECT c.name FROM customers c JOIN shops s ON s.x = c.name", "a table 'shops'"),
        ("DROP TABLE orders", "must be one query"),
        ("SELECT 1; SELECT 2", "must be one query"),
        ("", "must be one query"),
    ],
)
def test_sql_errors_are_found(sql: str, said: str) -> None:
    found = list(sql_problems(sql, ORDERS))
    assert found
    assert said in found[0]


@pytest.mark.parametrize("sql", ["SELECT item, FROM WHERE", "SELECT (item FROM orders", "SELECT 'item FROM orders"])
def test_unparsable_sql_is_left_to_spark(sql: str) -> None:
    with pytest.raises(Unreadable, match="cannot be parsed here"):
        list(sql_problems(sql, ORDERS))


def test_columns_are_checked_only_where_all_are_known() -> None:
    assert list(sql_problems("SELECT anything FROM orders", {"orders": None})) == []
    assert list(sql_problems("SELECT anything FROM orders, customers", {**ORDERS, "orders": None})) == []
