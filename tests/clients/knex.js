// The witness knex, over tedious: see README.md.
'use strict';
const knex = require('knex')({
  client: 'mssql',
  connection: {
    server: '127.0.0.1',
    port: Number(process.env.TDS_PORT),
    user: process.env.TDS_USER,
    password: process.env.TDS_PASSWORD,
    database: 'shop',
    options: { encrypt: true, trustServerCertificate: true },
  },
  pool: { min: 1, max: 2 },
});

const say = (step, value) => process.stdout.write(JSON.stringify({ step, value }) + '\n');
const count = async (query) => (await query('ledger').count({ n: '*' }))[0].n;

async function main() {
  await knex.schema.createTable('ledger', (table) => {
    table.increments('id');
    table.string('name', 40).notNullable();
    table.decimal('amount', 10, 2);
  });
  say('has', [await knex.schema.hasTable('ledger'), await knex.schema.hasTable('nowhere')]);
  const ids = [];
  for (let i = 1; i <= 3; i++) {
    const [made] = await knex('ledger').insert({ name: `Ω${i}`, amount: i }).returning('id');
    ids.push(made.id);
  }
  say('ids', ids);
  say('page', (await knex('ledger').select('name').orderBy('id').limit(1).offset(1)).map((row) => row.name));
  await knex.transaction(async (outer) => {
    await outer('ledger').del();
    throw new Error('back');
  }).catch(() => undefined);
  say('rollback', await count(knex));
  await knex.transaction(async (outer) => {
    await outer('ledger').insert({ name: 'kept' });
    await outer.transaction(async (inner) => {
      await inner('ledger').del();
      throw new Error('back');
    }).catch(() => undefined);
    await outer.transaction(async (inner) => inner('ledger').insert({ name: 'inside' }));
  });
  say('savepoint', await count(knex));
  say('columns', Object.keys(await knex('ledger').columnInfo()).sort());
  await knex.raw("BACKUP DATABASE shop TO DISK = 'knex.bak' WITH FORMAT");
  say('backup', true);
  await knex.schema.dropTable('ledger');
  await knex.destroy();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
