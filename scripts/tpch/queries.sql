-- The 22 questions of TPC-H with its validation parameters, in words of our own: what is asked is the benchmark's, how it is
-- asked is not. Each begins after a line `-- Q`.

-- Q1: what was shipped by September 1998, by its state
select l_returnflag, l_linestatus, count(*), sum(l_quantity), avg(l_quantity), sum(l_extendedprice), avg(l_extendedprice),
    avg(l_discount), sum(l_extendedprice * (1 - l_discount)), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax))
from lineitem where l_shipdate <= date '1998-09-02' group by 1, 2 order by 1, 2;

-- Q2: who in Europe sells each brass part of size 15 for least
with offers as (
    select s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment, ps_supplycost,
        min(ps_supplycost) over (partition by p_partkey) as cheapest
    from part join partsupp on ps_partkey = p_partkey join supplier on s_suppkey = ps_suppkey
        join nation on n_nationkey = s_nationkey join region on r_regionkey = n_regionkey
    where r_name = 'EUROPE' and p_size = 15 and p_type like '%BRASS')
select * from offers where ps_supplycost = cheapest order by s_acctbal desc, n_name, s_name, p_partkey limit 100;

-- Q3: the largest orders that were not shipped by 15 March 1995
select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate, o_shippriority
from customer join orders on o_custkey = c_custkey join lineitem on l_orderkey = o_orderkey
where c_mktsegment = 'BUILDING' and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
group by l_orderkey, o_orderdate, o_shippriority order by revenue desc, o_orderdate limit 10;

-- Q4: late orders of a quarter, by priority
select o_orderpriority, count(*) from orders
where o_orderdate >= date '1993-07-01' and o_orderdate < date '1993-10-01'
    and exists (select from lineitem where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
group by 1 order by 1;

-- Q5: revenue within the nations of Asia
select n_name, sum(l_extendedprice * (1 - l_discount)) as revenue
from region join nation on n_regionkey = r_regionkey join customer on c_nationkey = n_nationkey
    join orders on o_custkey = c_custkey join lineitem on l_orderkey = o_orderkey
    join supplier on s_suppkey = l_suppkey and s_nationkey = c_nationkey
where r_name = 'ASIA' and o_orderdate >= date '1994-01-01' and o_orderdate < date '1995-01-01'
group by n_name order by revenue desc;

-- Q6: what small discounts cost in a year
select sum(l_extendedprice * l_discount) from lineitem
where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01' and l_discount between 0.05 and 0.07 and l_quantity < 24;

-- Q7: trade between France and Germany, by year
select supplying.n_name, buying.n_name, extract(year from l_shipdate) as y, sum(l_extendedprice * (1 - l_discount))
from supplier join lineitem on l_suppkey = s_suppkey join orders on o_orderkey = l_orderkey join customer on c_custkey = o_custkey
    join nation supplying on supplying.n_nationkey = s_nationkey join nation buying on buying.n_nationkey = c_nationkey
where (supplying.n_name, buying.n_name) in (('FRANCE', 'GERMANY'), ('GERMANY', 'FRANCE'))
    and l_shipdate between date '1995-01-01' and date '1996-12-31'
group by 1, 2, 3 order by 1, 2, 3;

-- Q8: Brazil's share of the market for a kind of part in America
select extract(year from o_orderdate) as y,
    sum(l_extendedprice * (1 - l_discount)) filter (where selling.n_name = 'BRAZIL') / sum(l_extendedprice * (1 - l_discount))
from part join lineitem on l_partkey = p_partkey join supplier on s_suppkey = l_suppkey join orders on o_orderkey = l_orderkey
    join customer on c_custkey = o_custkey join nation buying on buying.n_nationkey = c_nationkey
    join region on r_regionkey = buying.n_regionkey join nation selling on selling.n_nationkey = s_nationkey
where r_name = 'AMERICA' and o_orderdate between date '1995-01-01' and date '1996-12-31' and p_type = 'ECONOMY ANODIZED STEEL'
group by 1 order by 1;

-- Q9: profit with green parts, by nation and year
select n_name, extract(year from o_orderdate) as y, sum(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity)
from part join lineitem on l_partkey = p_partkey join partsupp on (ps_partkey, ps_suppkey) = (l_partkey, l_suppkey)
    join supplier on s_suppkey = l_suppkey join orders on o_orderkey = l_orderkey join nation on n_nationkey = s_nationkey
where p_name like '%green%' group by 1, 2 order by 1, 2 desc;

-- Q10: customers who sent most back in a quarter
select c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) as revenue, c_acctbal, n_name, c_address, c_phone, c_comment
from customer join nation on n_nationkey = c_nationkey join orders on o_custkey = c_custkey join lineitem on l_orderkey = o_orderkey
where o_orderdate >= date '1993-10-01' and o_orderdate < date '1994-01-01' and l_returnflag = 'R'
group by c_custkey, n_name order by revenue desc limit 20;

-- Q11: the most valuable stock in Germany
with held as (
    select ps_partkey, sum(ps_supplycost * ps_availqty) as value
    from partsupp join supplier on s_suppkey = ps_suppkey join nation on n_nationkey = s_nationkey
    where n_name = 'GERMANY' group by ps_partkey)
select ps_partkey, value from held where value > (select 0.0001 * sum(value) from held) order by value desc;

-- Q12: late lines by mail and ship, of urgent and of other orders
select l_shipmode, count(*) filter (where o_orderpriority in ('1-URGENT', '2-HIGH')),
    count(*) filter (where o_orderpriority not in ('1-URGENT', '2-HIGH'))
from orders join lineitem on l_orderkey = o_orderkey
where l_shipmode in ('MAIL', 'SHIP') and l_shipdate < l_commitdate and l_commitdate < l_receiptdate
    and l_receiptdate >= date '1994-01-01' and l_receiptdate < date '1995-01-01'
group by 1 order by 1;

-- Q13: how many customers have how many orders
select orders_of, count(*) from (
    select c_custkey, count(o_orderkey) as orders_of
    from customer left join orders on o_custkey = c_custkey and o_comment not like '%special%requests%' group by 1) as each
group by 1 order by 2 desc, 1 desc;

-- Q14: the share of promoted parts in a month's revenue
select 100 * sum(l_extendedprice * (1 - l_discount)) filter (where p_type like 'PROMO%') / sum(l_extendedprice * (1 - l_discount))
from lineitem join part on p_partkey = l_partkey where l_shipdate >= date '1995-09-01' and l_shipdate < date '1995-10-01';

-- Q15: the best supplier of a quarter
with revenues as (
    select l_suppkey, sum(l_extendedprice * (1 - l_discount)) as revenue from lineitem
    where l_shipdate >= date '1996-01-01' and l_shipdate < date '1996-04-01' group by 1)
select s_suppkey, s_name, s_address, s_phone, revenue from supplier join revenues on l_suppkey = s_suppkey
where revenue = (select max(revenue) from revenues) order by 1;

-- Q16: how many suppliers without complaints sell parts of these sizes
select p_brand, p_type, p_size, count(distinct ps_suppkey) as suppliers
from part join partsupp on ps_partkey = p_partkey
where p_brand <> 'Brand#45' and p_type not like 'MEDIUM POLISHED%' and p_size in (49, 14, 23, 45, 19, 3, 36, 9)
    and ps_suppkey not in (select s_suppkey from supplier where s_comment like '%Customer%Complaints%')
group by 1, 2, 3 order by 4 desc, 1, 2, 3;

-- Q17: what small orders of a kind of part bring in a year
select sum(l_extendedprice) / 7.0 from lineitem join part on p_partkey = l_partkey
where p_brand = 'Brand#23' and p_container = 'MED BOX'
    and l_quantity < (select 0.2 * avg(each.l_quantity) from lineitem as each where each.l_partkey = p_partkey);

-- Q18: customers with orders of more than 300
select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity)
from customer join orders on o_custkey = c_custkey join lineitem on l_orderkey = o_orderkey
where o_orderkey in (select l_orderkey from lineitem group by 1 having sum(l_quantity) > 300)
group by c_custkey, o_orderkey order by o_totalprice desc, o_orderdate limit 100;

-- Q19: revenue from three kinds of parts that came by air
select sum(l_extendedprice * (1 - l_discount)) from lineitem join part on p_partkey = l_partkey
where l_shipmode in ('AIR', 'REG AIR') and l_shipinstruct = 'DELIVER IN PERSON' and p_size >= 1
    and (p_brand = 'Brand#12' and p_container in ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG') and p_size <= 5
            and l_quantity between 1 and 11
        or p_brand = 'Brand#23' and p_container in ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK') and p_size <= 10
            and l_quantity between 10 and 20
        or p_brand = 'Brand#34' and p_container in ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG') and p_size <= 15
            and l_quantity between 20 and 30);

-- Q20: who in Canada has too many forest parts
select s_name, s_address from supplier join nation on n_nationkey = s_nationkey
where n_name = 'CANADA' and s_suppkey in (
    select ps_suppkey from partsupp
    where ps_partkey in (select p_partkey from part where p_name like 'forest%')
        and ps_availqty > (select 0.5 * sum(l_quantity) from lineitem where (l_partkey, l_suppkey) = (ps_partkey, ps_suppkey)
                           and l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01'))
order by 1;

-- Q21: who in Saudi Arabia alone made orders late
select s_name, count(*) as late from supplier join nation on n_nationkey = s_nationkey
    join lineitem as own on own.l_suppkey = s_suppkey join orders on o_orderkey = own.l_orderkey
where n_name = 'SAUDI ARABIA' and o_orderstatus = 'F' and own.l_receiptdate > own.l_commitdate
    and exists (select from lineitem as o where o.l_orderkey = own.l_orderkey and o.l_suppkey <> own.l_suppkey)
    and not exists (select from lineitem as o where o.l_orderkey = own.l_orderkey and o.l_suppkey <> own.l_suppkey
                    and o.l_receiptdate > o.l_commitdate)
group by 1 order by 2 desc, 1 limit 100;

-- Q22: customers of seven countries with money and without orders
select substr(c_phone, 1, 2), count(*), sum(c_acctbal) from customer
where substr(c_phone, 1, 2) in ('13', '31', '23', '29', '30', '18', '17')
    and c_acctbal > (select avg(c_acctbal) from customer where c_acctbal > 0
                     and substr(c_phone, 1, 2) in ('13', '31', '23', '29', '30', '18', '17'))
    and not exists (select from orders where o_custkey = c_custkey)
group by 1 order by 1;
