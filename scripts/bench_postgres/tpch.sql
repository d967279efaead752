-- Orders and line items after the rules of TPC-H at scale 1 (1.5 and 6 million rows). Comments are pieces of one text
-- made of few words, as its own generator has it. The same on every run.
select setseed(0.4711);
create table orders (
    o_orderkey bigint not null, o_custkey bigint not null, o_orderstatus char(1) not null, o_totalprice numeric(15,2) not null,
    o_orderdate date not null, o_orderpriority char(15) not null, o_clerk char(15) not null, o_shippriority int not null,
    o_comment varchar(79) not null);
create table lineitem (
    l_orderkey bigint not null, l_partkey bigint not null, l_suppkey bigint not null, l_linenumber int not null,
    l_quantity numeric(15,2) not null, l_extendedprice numeric(15,2) not null, l_discount numeric(15,2) not null,
    l_tax numeric(15,2) not null, l_returnflag char(1) not null, l_linestatus char(1) not null, l_shipdate date not null,
    l_commitdate date not null, l_receiptdate date not null, l_shipinstruct char(25) not null, l_shipmode char(10) not null,
    l_comment varchar(44) not null);

with words as (
    select string_to_array('foxes ideas theodolites pinto beans instructions dependencies excuses platelets asymptotes '
        'courts dolphins multipliers sauternes warthogs frets dinos attainments somas braids hockey players frays '
        'warhorses dugouts notornis epitaphs pearls tithes waters orbits gifts sheaves depths sentiments decoys realms '
        'pains grouches escapades sleep wake are cajole haggle nag use boost affix detect integrate maintain nod was '
        'lose sublate solve thrash promise engage hinder print x-ray breach eat grow impress mold poach serve run dazzle '
        'snooze doze unwind kindle play hang believe doubt furious sly careful blithe quick fluffy slow quiet ruthless '
        'thin close dogged daring brave stealthy permanent enticing idle busy regular final ironic even bold silent '
        'sometimes always never furiously slyly carefully blithely quickly fluffily about above according to across '
        'after against along among around at before between into near of past', ' ') as w
), pool as materialized (
    select string_agg(w[1 + floor(random() * array_length(w, 1))::int], ' ') as t from words, generate_series(1, 60000)
)
insert into orders
select (i - 1) / 8 * 32 + (i - 1) % 8 + 1, 1 + floor(random() * 149999), substr('FFFOOOP', 1 + floor(random() * 7)::int, 1),
    round((850 + random() * 450000)::numeric, 2), date '1992-01-01' + floor(random() * 2406)::int,
    (array['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW'])[1 + floor(random() * 5)::int],
    'Clerk#' || lpad((1 + floor(random() * 1000))::text, 9, '0'), 0,
    substr((select t from pool), 1 + floor(random() * 390000)::int, 19 + floor(random() * 60)::int)
from generate_series(1, 1500000) as i;

with words as (
    select string_to_array('foxes ideas theodolites pinto beans instructions dependencies excuses platelets asymptotes '
        'courts dolphins multipliers sleep wake are cajole haggle nag use boost affix detect integrate maintain nod was '
        'lose sublate solve thrash promise engage hinder furious sly careful blithe quick fluffy slow quiet ruthless '
        'thin close dogged daring brave stealthy permanent enticing idle busy regular final ironic even bold silent '
        'furiously slyly carefully blithely quickly fluffily about above according to across after against', ' ') as w
), pool as materialized (
    select string_agg(w[1 + floor(random() * array_length(w, 1))::int], ' ') as t from words, generate_series(1, 60000)
), drawn as (
    select o_orderkey, o_orderdate, line, 1 + floor(random() * 200000)::bigint as part, 1 + floor(random() * 50)::int as quantity,
        o_orderdate + 1 + floor(random() * 121)::int as shipped
    from orders, generate_series(1, 1 + (o_orderkey * 7919 / 8 % 7)::int) as line offset 0
)
insert into lineitem
select o_orderkey, part, 1 + (part + floor(random() * 4)::bigint * 2501) % 10000, line, quantity,
    quantity * (90000 + part / 10 % 20001 + 100 * (part % 1000)) / 100.0, floor(random() * 11) / 100, floor(random() * 9) / 100,
    case when shipped > '1995-06-17' then 'N' when random() < 0.5 then 'R' else 'A' end,
    case when shipped > '1995-06-17' then 'O' else 'F' end,
    shipped, o_orderdate + 30 + floor(random() * 61)::int, shipped + 1 + floor(random() * 30)::int,
    (array['DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN'])[1 + floor(random() * 4)::int],
    (array['REG AIR', 'AIR', 'RAIL', 'SHIP', 'TRUCK', 'MAIL', 'FOB'])[1 + floor(random() * 7)::int],
    substr((select t from pool), 1 + floor(random() * 380000)::int, 10 + floor(random() * 34)::int)
from drawn;

alter table orders add primary key (o_orderkey);
alter table lineitem add primary key (l_orderkey, l_linenumber);
