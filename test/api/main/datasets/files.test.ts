import { randomUUID } from 'node:crypto';
import { describe, expect, it, vi } from 'vitest';
import { getTenantContext } from '../../../../infra/fairness/tenant-context.ts';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, startApi } from '../../start-api.ts';

/** Datasets as files: uploads of CSV and JSONL, and downloads. */

const api = forSuite(() => startApi({ config: { maxRunBytes: 200_000 } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));
const client = forSuite(() =>
  openClient(api, acme.adminKey, { autoBatchTracing: false, callerOptions: { maxRetries: 0 } }),
);

interface Answer {
  readonly status: number;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: each operation has its own response type.
  readonly body: any;
}

/** Sends a form; a list becomes a repeated field. */
async function upload(
  file: string | Uint8Array<ArrayBuffer>,
  fields: Readonly<Record<string, string | readonly string[]>>,
  fileName = `${randomUUID()}.csv`,
): Promise<Answer> {
  const form = new FormData();
  form.append('file', new Blob([file]), fileName);
  for (const [name, value] of Object.entries(fields)) for (const each of [value].flat()) form.append(name, each);
  return send('/datasets/upload', { method: 'POST', body: form });
}

async function send(path: string, options: RequestInit = {}): Promise<Answer> {
  const response = await fetch(`${await api.listen()}${path}`, { ...options, headers: { 'x-api-key': acme.adminKey } });
  const text = await response.text();
  const isJson = response.headers.get('content-type')?.startsWith('application/json');
  return { status: response.status, text, body: isJson ? JSON.parse(text) : undefined };
}

/** Returns the text of an error; a 422 has it in a list. */
const getReason = ({ body }: Answer): string => body.detail[0].msg ?? body.detail;
const download = async (datasetId: string, format: string, query = '') =>
  (await send(`/datasets/${datasetId}/${format}${query}`)).text;
const lines = (text: string) =>
  text
    .trimEnd()
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));

describe('an upload', () => {
  it('is made by the stock SDK', async () => {
    const made = await client.uploadCsv({
      csvFile: new Blob(['question,answer,other\n"why, then?",because,1\nhow?,"a\n""quote""",2\n']),
      fileName: 'questions.csv',
      inputKeys: ['question'],
      outputKeys: ['answer'],
      description: 'from a file',
      dataType: 'kv',
      name: `questions ${randomUUID()}`,
    });
    expect(made).toMatchObject({ description: 'from a file', data_type: 'kv', example_count: 2 });
    const stored = lines(await download(made.id, 'jsonl'));
    expect(stored).toMatchObject([
      { inputs: { question: 'why, then?' }, outputs: { answer: 'because' }, metadata: { dataset_split: ['base'] } },
      { inputs: { question: 'how?' }, outputs: { answer: 'a\n"quote"' } },
    ]);
    const [version] = (await send(`/datasets/${made.id}/versions`)).body;
    expect(version.tags).toEqual(['latest']);
  });

  it('keeps the values of JSONL exactly', async () => {
    const rows = [
      '{"n": 12345678901234567890, "t": "\\u0000", "deep": {"b":1,"a":[null]}, "m": {"x": 1}, "o": null}',
      '',
      '{"n":1.50,"t":"2","deep":0}\r',
    ];
    const keys = { input_keys: ['n', 't', 'deep'], output_keys: ['o'], metadata_keys: ['m'] };
    const { body } = await upload(`\ufeff${rows.join('\n')}`, { ...keys, name: randomUUID() }, 'x.JSONL');
    expect(body.example_count).toBe(2);
    const [first = '', second = ''] = (await download(body.id, 'jsonl')).split('\n');
    expect(first).toContain('"inputs":{"n":12345678901234567890,"t":"\\u0000","deep":{"b":1,"a":[null]}}');
    expect(JSON.parse(first)).toMatchObject({ outputs: { o: null }, metadata: { m: { x: 1 } } });
    expect(second).toContain('"inputs":{"n":1.50,"t":"2","deep":0},"outputs":null');
  });

  it('limits the time that the schema takes for all rows together', { timeout: 60_000 }, async () => {
    // One row in 100 takes tens of milliseconds, because the pattern tries very many ways to find the b.
    const pattern = { type: 'object', properties: { a: { type: 'string', pattern: '^(?:(a+)+b)?.*$' } } };
    const rows = `${'1\n'.repeat(99)}${'a'.repeat(24)}\n`;
    const refused = await upload(`a\n${rows.repeat(200)}`, {
      input_keys: 'a',
      inputs_schema_definition: JSON.stringify(pattern),
    });
    expect([refused.status, getReason(refused)]).toEqual([
      422,
      expect.stringMatching(/in row (?!101:)\d+01: .*cannot be validated/),
    ]);
  });

  it('holds few connections to Postgres while it waits for the validation of its rows', async () => {
    const pattern = { type: 'object', properties: { a: { type: 'string', pattern: '^(a+)+$' } } };
    const fields = { input_keys: 'a', inputs_schema_definition: JSON.stringify(pattern) };
    expect((await upload('a\na\n', fields)).status).toBe(200);
    const beganMs = performance.now();
    const slow = upload(`a\n${'a'.repeat(50)}b\n`, fields);
    const others = Array.from({ length: 12 }, () => upload(`a\n${'a\n'.repeat(10)}`, fields));
    let isSlowEnded = false;
    void slow.finally(() => {
      isSlowEnded = true;
    });
    // If the uploads held all connections, one query would wait until the end of the slow upload.
    let maxMs = 0;
    while (!isSlowEnded) {
      const startMs = performance.now();
      await api.database.query('SELECT 1');
      maxMs = Math.max(maxMs, performance.now() - startMs);
    }
    expect(maxMs).toBeLessThan((performance.now() - beganMs) / 2);
    expect((await slow).status).toBe(422);
    for (const { status } of await Promise.all(others)) expect(status).toBe(200);
  });

  it('names the dataset after the file, and uses the schemas of the form', async () => {
    const fileName = `${randomUUID()}.csv`;
    const schema = JSON.stringify({ type: 'object', properties: { a: { maxLength: 2 } } });
    const fields = { input_keys: 'a', inputs_schema_definition: schema, metadata_keys: 'b' };
    const { body } = await upload('a,b\n1,x\n', fields, fileName);
    expect(body).toMatchObject({ name: fileName, inputs_schema_definition: JSON.parse(schema), example_count: 1 });
    expect(lines(await download(body.id, 'jsonl'))).toMatchObject([{ metadata: { b: 'x' } }]);
    const again = await upload('a,b\n1,x\n', fields, fileName);
    expect([again.status, again.body.detail]).toEqual([409, expect.stringMatching(/already exists/)]);
    const refused = await upload('a,b\n1,x\n22,\n333,\n', { ...fields, name: randomUUID() });
    expect([refused.status, getReason(refused)]).toEqual([422, expect.stringMatching(/in row 4: inputs\/a must NOT/)]);
  });

  it.each([
    ['a column is missing', 'b,c\n1,2\n', /Row 1 of the file: there is no column "a"; the columns are \["b","c"\]/],
    ['a column is repeated', 'a,a\n1,2\n', /Row 1 of the file: there are several columns "a"/],
    ['a row is too long', 'a\n1\n\n1,2\n', /Row 3 of the file: it has 2 cells, but the header has 1/],
    ['a quote is open', 'a\n1\n"2\n', /Row 3 of the file: a quoted cell is not closed/],
    ['a quote is wrong', 'a\n"1"x\n', /Row 2 of the file: a quote is at a wrong place/],
    ['a row is too large', `a\n1\n${'x'.repeat(300_000)}\n`, /Row 3 of the file: it is too large/],
    ['the file is empty', '', /Row 1 of the file: the file is empty/],
    ['the file is not UTF-8', new Uint8Array([0x61, 0x0a, 0xff]), /not UTF-8/],
  ])('is refused as a whole if %s', async (_, file, message) => {
    const name = randomUUID();
    const answer = await upload(file, { name, input_keys: 'a' });
    expect([400, 422]).toContain(answer.status);
    expect(getReason(answer)).toMatch(message);
    expect((await send(`/datasets?name=${name}`)).body).toEqual([]);
  });

  it.each([
    ['no JSON', '{"a":1}\n{"a":', /Row 2 of the file: Invalid JSON in the row at byte 5/],
    ['no object', '[1]', /Row 1 of the file: it is not a JSON object/],
    ['no input', '\n{"b":1}', /Row 2 of the file: it has no value "a"/],
    ['deep', `{"a":${'['.repeat(2_000)}${']'.repeat(2_000)}}`, /Row 1 of the file: .*(deep|nest)/i],
    ['large', `{"a":"${'x'.repeat(300_000)}"}`, /Row 1 of the file: it is too large/],
  ])('of JSONL is refused if a row is %s', async (_, file, message) => {
    const answer = await upload(file, { name: randomUUID(), input_keys: 'a' }, 'rows.jsonl');
    expect([answer.status, getReason(answer)]).toEqual([422, expect.stringMatching(message)]);
  });

  it.each([
    ['input_keys', { name: 'x' }, 422],
    ['input_keys', { input_keys: Array.from({ length: 101 }, (_, index) => `k${index}`) }, 422],
    ['data_type', { input_keys: 'a', data_type: 'x' }, 422],
    ['name', { input_keys: 'a', name: '\u0000' }, 422],
    ['inputs_schema_definition', { input_keys: 'a', inputs_schema_definition: '[]' }, 422],
    ['inputs_schema_definition', { input_keys: 'a', inputs_schema_definition: '{"type":1}' }, 422],
    ['transformations', { input_keys: 'a', transformations: '[{"path":["a"]}]' }, 422],
    ['transformations', { input_keys: 'a', transformations: '[{"path":["a"],"transformation_type":"x"}]' }, 400],
    ['input_key_mappings', { input_keys: 'a', input_key_mappings: '{"a":"b"}' }, 400],
  ])('is refused for its field %s', async (field, fields, status) => {
    const answer = await upload('a\n1\n', { name: randomUUID(), ...fields });
    expect([answer.status, answer.text]).toEqual([status, expect.stringContaining(field)]);
  });

  it('may have many rows, whose order stays', async () => {
    const count = 20_000;
    const file = ['n', ...Array.from({ length: count }, (_, n) => n)].join('\n');
    const { body } = await upload(file, { name: randomUUID(), input_keys: 'n' });
    expect(body.example_count).toBe(count);
    const numbers = lines(await download(body.id, 'jsonl')).map(({ inputs }) => Number(inputs.n));
    expect(numbers).toEqual(Array.from({ length: count }, (_, n) => n));
  });
});

describe('a download', () => {
  const addDataset = async (examples: readonly object[]) => {
    const dataset = await client.createDataset(randomUUID());
    // Each example gets its own version, so that the order is known.
    for (const example of examples) await client.createExample({ dataset_id: dataset.id, ...example } as never);
    return dataset.id;
  };

  it('as CSV has all columns, and JSON for values that are no texts', async () => {
    const id = await addDataset([
      { inputs: { a: 'x,"y"', n: 1 }, outputs: { a: 'line\nbreak' } },
      { inputs: { b: { c: [1] } } },
    ]);
    const csv = await download(id, 'csv');
    const ids = lines(await download(id, 'jsonl')).map((line) => line.id);
    const metadata = '"{""dataset_split"":[""base""]}"';
    expect(csv).toBe(
      [
        'id,inputs.a,inputs.n,inputs.b,outputs.a,metadata',
        `${ids[0]},"x,""y""",1,,"line\nbreak",${metadata}`,
        `${ids[1]},,,"{""c"":[1]}",,${metadata}`,
        '',
      ].join('\r\n'),
    );
    const wideInputs = Object.fromEntries(Array.from({ length: 1_001 }, (_, n) => [`k${n}`, n]));
    expect(await send(`/datasets/${await addDataset([{ inputs: wideInputs }])}/csv`)).toMatchObject({ status: 400 });
  });

  it('shares the connections to Postgres with other organisations until its end, as a clone does', async () => {
    const { id: source_dataset_id } = await client.createDataset(randomUUID());
    const examples = Array.from({ length: 2_500 }, (_, n) => ({ dataset_id: source_dataset_id, inputs: { n } }));
    const headers = { 'x-api-key': acme.adminKey };
    const post = (url: string, payload: object) => api.server.inject({ method: 'POST', url, headers, payload });
    expect((await post('/examples/bulk', examples)).statusCode).toBe(200);
    const { id: target_dataset_id } = await client.createDataset(randomUUID());
    const { database } = api.services;
    const { query } = database;
    let statements = 0;
    const ofNobody: string[] = [];
    const spy = vi.spyOn(database, 'query').mockImplementation(((sql: string, ...more: []) => {
      statements += 1;
      if (getTenantContext() === undefined) ofNobody.push(sql);
      return query(sql, ...more);
    }) as typeof query);
    try {
      expect(lines(await download(source_dataset_id, 'jsonl'))).toHaveLength(2_500);
      expect((await download(source_dataset_id, 'csv')).split('\r\n')).toHaveLength(2_502);
      expect((await post('/datasets/clone', { source_dataset_id, target_dataset_id })).json()).toHaveLength(2_500);
    } finally {
      spy.mockRestore();
    }
    expect(statements).toBeGreaterThan(20);
    expect(ofNobody.filter((sql) => sql.includes('FROM examples') || sql.includes('JOIN examples'))).toEqual([]);
  });

  it('is of a version', async () => {
    const id = await addDataset([{ inputs: { n: 1 } }]);
    const { as_of } = await client.readDatasetVersion({ datasetId: id, tag: 'latest' });
    await client.updateDatasetTag({ datasetId: id, asOf: as_of, tag: 'first' });
    await client.createExample({ dataset_id: id, inputs: { n: 2 } });
    for (const [asOf, count] of [
      [as_of, 1],
      ['first', 1],
      ['latest', 2],
      ['2020-01-01T00:00:00Z', 0],
    ] as const) {
      const query = `?as_of=${encodeURIComponent(asOf)}`;
      expect(lines(await download(id, 'jsonl', query))).toHaveLength(count);
      expect((await download(id, 'csv', query)).trimEnd().split('\r\n')).toHaveLength(count + 1);
    }
    expect((await send(`/datasets/${id}/csv?as_of=never`)).status).toBe(404);
    const empty = await client.createDataset(randomUUID());
    expect(await download(empty.id, 'jsonl')).toBe('');
    expect(await download(empty.id, 'csv')).toBe('id,metadata\r\n');
  });

  it('for OpenAI has messages', async () => {
    const id = await addDataset([
      {
        inputs: {
          messages: [
            { role: 'system', content: 'be kind' },
            { type: 'human', data: { content: 'hi' } },
          ],
        },
        outputs: { output: { type: 'ai', content: '', tool_calls: [{ id: '1', name: 'f', args: { x: 1 } }] } },
      },
      { inputs: { question: 'why?' }, outputs: { answer: 'because' } },
      { inputs: { a: 1, b: 2 } },
    ]);
    const call = { id: '1', type: 'function', function: { name: 'f', arguments: '{"x":1}' } };
    const first = [
      { role: 'system', content: 'be kind' },
      { role: 'user', content: 'hi' },
    ];
    expect(await client.readDatasetOpenaiFinetuning({ datasetId: id })).toEqual([
      { messages: [...first, { role: 'assistant', content: '', tool_calls: [call] }] },
      {
        messages: [
          { role: 'user', content: 'why?' },
          { role: 'assistant', content: 'because' },
        ],
      },
      { messages: [{ role: 'user', content: '{"a":1,"b":2}' }] },
    ]);
    expect(lines(await download(id, 'openai'))).toEqual([
      { input: first, ideal: '' },
      { input: [{ role: 'user', content: 'why?' }], ideal: 'because' },
      { input: [{ role: 'user', content: '{"a":1,"b":2}' }], ideal: null },
    ]);
  });

  it('has one line for each example, whatever JSON was sent', async () => {
    const id = await addDataset([]);
    const part = (name: string, content: string) =>
      `--cut\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${content}\r\n`;
    const example = randomUUID();
    const payload = `${part(example, '{}')}${part(`${example}.inputs`, '{\r\n  "a":\n  "x\\ny"\n}')}--cut--\r\n`;
    const headers = { 'x-api-key': acme.adminKey, 'content-type': 'multipart/form-data; boundary=cut' };
    const url = `/v1/platform/datasets/${id}/examples`;
    expect((await api.server.inject({ method: 'POST', url, headers, payload })).statusCode).toBe(201);
    expect(lines(await download(id, 'jsonl'))).toMatchObject([{ inputs: { a: 'x\ny' } }]);
  });
});
