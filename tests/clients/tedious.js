// The witness tedious: see README.md.
'use strict';
const { Connection, Request, TYPES } = require('tedious');

const mode = process.env.MODE || 'batches';
const say = (event) => process.stdout.write(JSON.stringify(event) + '\n');
const pad = (n, width) => String(n).padStart(width, '0');

function shown({ value, metadata }) {
  if (value === null || value === undefined) return null;
  if (value === true) return '1';
  if (value === false) return '0';
  if (Buffer.isBuffer(value)) return '0x' + value.toString('hex').toUpperCase();
  if (value instanceof Date) {
    const date = `${value.getUTCFullYear()}-${pad(value.getUTCMonth() + 1, 2)}-${pad(value.getUTCDate(), 2)}`;
    const time = [value.getUTCHours(), value.getUTCMinutes(), value.getUTCSeconds()].map((n) => pad(n, 2));
    return `${date} ${time.join(':')}.${pad(value.getUTCMilliseconds(), 3)}`;
  }
  if (metadata.type.name === 'NumericN' || metadata.type.name === 'DecimalN') return value.toFixed(metadata.scale);
  return String(value);
}

const connection = new Connection({
  server: '127.0.0.1',
  authentication: {
    type: 'default',
    options: { userName: process.env.TDS_USER, password: process.env.TDS_PASSWORD },
  },
  options: {
    port: Number(process.env.TDS_PORT),
    encrypt: process.env.TDS_ENCRYPT === 'strict' ? 'strict' : process.env.TDS_ENCRYPT !== 'off',
    trustServerCertificate: true,
    requestTimeout: 0,
    useUTC: true,
    database: process.env.TDS_DATABASE || undefined,
  },
});

function run(make) {
  return new Promise((resolve) => {
    let cancelled = false;
    const request = make((error) => {
      listening = null;
      resolve(error);
    });
    listening = (event) => {
      say(event);
      if (mode === 'cancel' && !cancelled && 'message' in event) {
        cancelled = true;
        connection.cancel();
      }
    };
    request.on('columnMetadata', (columns) => say({ columns: columns.map((c) => c.colName) }));
    request.on('row', (columns) => say({ row: columns.map(shown) }));
    const done = (rows) => say({ done: rows === undefined ? null : rows });
    for (const event of ['done', 'doneInProc', 'doneProc']) request.on(event, done);
    request.on('returnValue', (name, value) => say({ output: name, value: shown({ value, metadata: { type: {} } }) }));
    return request;
  });
}

let listening = null;
const heard = (m) => {
  const event = { message: m.message, number: m.number, class: m.class, state: m.state, line: m.lineNumber };
  if (listening) listening(event);
};
connection.on('infoMessage', heard);
connection.on('errorMessage', heard);
connection.on('error', (error) => say({ lost: String(error) }));

const batch = (text) => run((ended) => {
  const request = new Request(text, ended);
  connection.execSqlBatch(request);
  return request;
});

async function parameters() {
  await run((ended) => {
    const request = new Request('SET @n = @n * 2; SELECT @what AS what, @n AS n, @at AS at, @id AS id', ended);
    request.addParameter('what', TYPES.NVarChar, 'Ωmega');
    request.addOutputParameter('n', TYPES.Int, 21);
    request.addParameter('at', TYPES.DateTime, new Date(Date.UTC(2026, 2, 1, 22, 15, 4, 120)));
    request.addParameter('id', TYPES.UniqueIdentifier, '0E984725-C51C-4BF4-9960-E1C80E27ABA0');
    connection.execSql(request);
    return request;
  });
  // A device's name as a parameter, prepared once, run twice.
  const request = await new Promise((resolve) => {
    const request = new Request('BACKUP DATABASE shop TO DISK = @device', () => {});
    request.addParameter('device', TYPES.NVarChar);
    request.once('prepared', () => resolve(request));
    connection.prepare(request);
  });
  for (const device of ['NUL', 'prepared.bak']) {
    await run((ended) => {
      request.removeAllListeners();
      request.callback = ended;
      connection.execute(request, { device });
      return request;
    });
  }
  await new Promise((resolve) => {
    request.removeAllListeners();
    request.callback = resolve;
    connection.unprepare(request);
  });
  await new Promise((resolve) => connection.reset(resolve));
  await run((ended) => {
    const request = new Request('sp_configure', ended);
    request.addParameter('configname', TYPES.VarChar, 'media retention');
    connection.callProcedure(request);
    return request;
  });
}

connection.connect(async (error) => {
  if (error) {
    say({ refused: error.message, number: error.cause ? error.cause.number : null });
    process.exit(3);
  }
  if (mode === 'parameters') {
    await parameters();
  } else {
    const texts = JSON.parse(require('fs').readFileSync(0, 'utf8'));
    for (const text of texts) {
      await batch(text);
      say({ ended: true });
    }
  }
  connection.close();
});
