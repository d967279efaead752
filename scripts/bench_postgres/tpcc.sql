-- The large tables of TPC-C after its field rules, for :warehouses warehouses. Its "random a-strings" are letters and
-- digits drawn one by one, which compress by a quarter and no more. The same on every run.
create function a_string(seed text, n int) returns text language sql immutable as
    $$ select left(translate(encode(sha512((seed)::bytea), 'base64'), E'+/=\n', 'Kq'), n) $$;
create function last_name(n int) returns text language sql immutable as
    $$ select s[1 + n / 100] || s[1 + n / 10 % 10] || s[1 + n % 10]
       from (select array['BAR', 'OUGHT', 'ABLE', 'PRI', 'PRES', 'ESE', 'ANTI', 'CALLY', 'ATION', 'EING'] as s) as syllables $$;
select setseed(0.1723);

create table customer (
    c_id int not null, c_d_id smallint not null, c_w_id int not null, c_first varchar(16), c_middle char(2), c_last varchar(16),
    c_street_1 varchar(20), c_street_2 varchar(20), c_city varchar(20), c_state char(2), c_zip char(9), c_phone char(16),
    c_since timestamp, c_credit char(2), c_credit_lim numeric(12,2), c_discount numeric(4,4), c_balance numeric(12,2),
    c_ytd_payment numeric(12,2), c_payment_cnt smallint, c_delivery_cnt smallint, c_data varchar(500));
insert into customer
select c, d, w, a_string('f' || key, 8 + key % 9), 'OE', last_name(case when c <= 1000 then c - 1 else floor(random() * 1000)::int end),
    a_string('s' || key, 10 + key % 11), a_string('t' || key, 10 + key % 7), a_string('y' || key, 10 + key % 5),
    upper(a_string('z' || key, 2)), lpad(floor(random() * 10000)::text, 4, '0') || '11111',
    lpad(floor(random() * 1e8)::text, 8, '0') || lpad(floor(random() * 1e8)::text, 8, '0'), timestamp '2026-01-01 00:00',
    case when random() < 0.1 then 'BC' else 'GC' end, 50000, floor(random() * 5000) / 10000, -10, 10, 1, 0,
    left(a_string('1' || key, 86) || a_string('2' || key, 86) || a_string('3' || key, 86) || a_string('4' || key, 86)
        || a_string('5' || key, 86) || a_string('6' || key, 86), 300 + key % 201)
from (select w, d, c, (w * 10 + d) * 3000 + c as key
      from generate_series(1, :warehouses) as w, generate_series(1, 10) as d, generate_series(1, 3000) as c) as keys;

create table stock (
    s_i_id int not null, s_w_id int not null, s_quantity smallint, s_dist_01 char(24), s_dist_02 char(24), s_dist_03 char(24),
    s_dist_04 char(24), s_dist_05 char(24), s_dist_06 char(24), s_dist_07 char(24), s_dist_08 char(24), s_dist_09 char(24),
    s_dist_10 char(24), s_ytd int, s_order_cnt smallint, s_remote_cnt smallint, s_data varchar(50));
insert into stock
select i, w, 10 + floor(random() * 91), substr(d, 1, 24), substr(d, 25, 24), substr(d, 49, 24), substr(d, 73, 24), substr(d, 97, 24),
    substr(d, 121, 24), substr(d, 145, 24), substr(d, 169, 24), substr(d, 193, 24), substr(d, 217, 24), 0, 0, 0,
    case when random() < 0.1 then 'ORIGINAL' else '' end || a_string('d' || w || '.' || i, 26 + i % 17)
from (select w, i, a_string('a' || w || '.' || i, 86) || a_string('b' || w || '.' || i, 86) || a_string('c' || w || '.' || i, 86) as d
      from generate_series(1, :warehouses) as w, generate_series(1, 100000) as i offset 0) as rows;

create table order_line (
    ol_o_id int not null, ol_d_id smallint not null, ol_w_id int not null, ol_number smallint not null, ol_i_id int,
    ol_supply_w_id int, ol_delivery_d timestamp, ol_quantity smallint, ol_amount numeric(6,2), ol_dist_info char(24));
insert into order_line
select o, d, w, l, 1 + floor(random() * 100000), w, case when o < 2101 then timestamp '2026-01-01 00:00' end, 5,
    case when o < 2101 then 0 else round((random() * 9999.99)::numeric, 2) end, a_string('l' || w || '.' || d || '.' || o || '.' || l, 24)
from generate_series(1, :warehouses) as w, generate_series(1, 10) as d, generate_series(1, 3000) as o,
    generate_series(1, 5 + (o * 7919) % 11) as l;

alter table customer add primary key (c_w_id, c_d_id, c_id);
alter table stock add primary key (s_w_id, s_i_id);
alter table order_line add primary key (ol_w_id, ol_d_id, ol_o_id, ol_number);
create index on customer (c_w_id, c_d_id, c_last, c_first);
