-- The other tables of TPC-H at scale 1, after its rules, next to orders and line items (`bench_postgres/tpch.sql`, which comes
-- first), with the indexes that its joins want. Values are drawn, so results differ from those of the benchmark's generator. The
-- same on every run.
select setseed(0.1147);
create table region (r_regionkey int primary key, r_name char(25) not null, r_comment varchar(152));
create table nation (n_nationkey int primary key, n_name char(25) not null, n_regionkey int not null, n_comment varchar(152));
create table supplier (
    s_suppkey bigint not null, s_name char(25) not null, s_address varchar(40) not null, s_nationkey int not null,
    s_phone char(15) not null, s_acctbal numeric(15,2) not null, s_comment varchar(101) not null);
create table customer (
    c_custkey bigint not null, c_name varchar(25) not null, c_address varchar(40) not null, c_nationkey int not null,
    c_phone char(15) not null, c_acctbal numeric(15,2) not null, c_mktsegment char(10) not null, c_comment varchar(117) not null);
create table part (
    p_partkey bigint not null, p_name varchar(55) not null, p_mfgr char(25) not null, p_brand char(10) not null,
    p_type varchar(25) not null, p_size int not null, p_container char(10) not null, p_retailprice numeric(15,2) not null,
    p_comment varchar(23) not null);
create table partsupp (
    ps_partkey bigint not null, ps_suppkey bigint not null, ps_availqty int not null, ps_supplycost numeric(15,2) not null,
    ps_comment varchar(199) not null);

insert into region select n - 1, name, 'drawn' from unnest(array['AFRICA', 'AMERICA', 'ASIA', 'EUROPE', 'MIDDLE EAST'])
    with ordinality as r(name, n);
insert into nation select n - 1, split_part(pair, ':', 1), split_part(pair, ':', 2)::int, 'drawn' from unnest(array[
    'ALGERIA:0', 'ARGENTINA:1', 'BRAZIL:1', 'CANADA:1', 'EGYPT:4', 'ETHIOPIA:0', 'FRANCE:3', 'GERMANY:3', 'INDIA:2',
    'INDONESIA:2', 'IRAN:4', 'IRAQ:4', 'JAPAN:2', 'JORDAN:4', 'KENYA:0', 'MOROCCO:0', 'MOZAMBIQUE:0', 'PERU:1', 'CHINA:2',
    'ROMANIA:3', 'SAUDI ARABIA:4', 'VIETNAM:2', 'RUSSIA:3', 'UNITED KINGDOM:3', 'UNITED STATES:1'])
    with ordinality as n(pair, n);

create function pg_temp.phone(nation int) returns text language sql volatile as
    $$ select format('%s-%s-%s-%s', nation + 10, 100 + floor(random() * 900)::int, 100 + floor(random() * 900)::int,
                     1000 + floor(random() * 9000)::int) $$;
create temp table pool (t text);
alter table pool alter t set storage external;
insert into pool select string_agg(substr(o_comment, 1, 40), ' ' order by o_orderkey)
    from (select * from orders order by o_orderkey limit 12000) as first;
create function pg_temp.words(shortest int, longest int) returns text language sql volatile as
    $$ select substr(t, 1 + floor(random() * 400000)::int, shortest + floor(random() * (longest - shortest + 1))::int) from pool $$;

insert into supplier
select i, 'Supplier#' || lpad(i::text, 9, '0'), md5(random()::text), nation, pg_temp.phone(nation),
    round((random() * 10998 - 999)::numeric, 2),
    case when i % 2000 = 7 then 'quick Customer and slow Complaints ' else '' end || pg_temp.words(25, 65)
from (select i, floor(random() * 25)::int as nation from generate_series(1, 10000) as i) as drawn;
insert into customer
select i, 'Customer#' || lpad(i::text, 9, '0'), md5(random()::text), nation, pg_temp.phone(nation),
    round((random() * 10998 - 999)::numeric, 2),
    (array['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'HOUSEHOLD', 'MACHINERY'])[1 + floor(random() * 5)::int], pg_temp.words(29, 116)
from (select i, floor(random() * 25)::int as nation from generate_series(1, 150000) as i) as drawn;
with colours as (
    select string_to_array('almond antique aquamarine azure beige bisque black blanched blue blush brown burlywood chartreuse '
        'chiffon chocolate coral cornflower cream cyan dark deep dim dodger drab firebrick forest frosted ghost goldenrod green '
        'grey honeydew hot indian ivory khaki lace lavender lawn lemon light lime linen magenta maroon medium metallic midnight '
        'mint misty moccasin navajo navy olive orange orchid pale papaya peach peru pink plum powder puff purple red rose rosy '
        'royal saddle salmon sandy seashell sienna sky slate smoke snow spring steel tan thistle tomato turquoise violet wheat '
        'white yellow', ' ') as c
), drawn as (
    select i, 1 + floor(random() * 5)::int as maker, 1 + floor(random() * 5)::int as brand,
        array(select 1 + floor(random() * 92)::int from generate_series(1, 5) where i > 0) as named
    from generate_series(1, 200000) as i
)
insert into part
select i, (select string_agg(c[n], ' ') from colours, unnest(named) as n), 'Manufacturer#' || maker, 'Brand#' || maker || brand,
    (array['STANDARD', 'SMALL', 'MEDIUM', 'LARGE', 'ECONOMY', 'PROMO'])[1 + floor(random() * 6)::int] || ' ' ||
    (array['ANODIZED', 'BURNISHED', 'PLATED', 'POLISHED', 'BRUSHED'])[1 + floor(random() * 5)::int] || ' ' ||
    (array['TIN', 'NICKEL', 'BRASS', 'STEEL', 'COPPER'])[1 + floor(random() * 5)::int],
    1 + floor(random() * 50)::int,
    (array['SM', 'LG', 'MED', 'JUMBO', 'WRAP'])[1 + floor(random() * 5)::int] || ' ' ||
    (array['CASE', 'BOX', 'BAG', 'JAR', 'PKG', 'PACK', 'CAN', 'DRUM'])[1 + floor(random() * 8)::int],
    (90000 + i / 10 % 20001 + 100 * (i % 1000)) / 100.0, pg_temp.words(5, 22)
from drawn;
insert into partsupp
select p_partkey, 1 + (p_partkey + k * 2501) % 10000, 1 + floor(random() * 9999)::int, round((1 + random() * 999)::numeric, 2),
    pg_temp.words(49, 198)
from part, generate_series(0, 3) as k;

alter table supplier add primary key (s_suppkey);
alter table customer add primary key (c_custkey);
alter table part add primary key (p_partkey);
alter table partsupp add primary key (ps_partkey, ps_suppkey);
create index on nation (n_regionkey);
create index on supplier (s_nationkey);
create index on customer (c_nationkey);
create index on partsupp (ps_suppkey);
create index on orders (o_custkey);
create index on lineitem (l_partkey, l_suppkey);
create index on lineitem (l_suppkey);
