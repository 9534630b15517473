import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { addOrganization, askAs, startApi } from '../../api/start-api.ts';
import { forSuite } from '../../for-suite.ts';
import fc from '../../house/fast-check.ts';

/**
 * Generated histories of a dataset: every version, when it is read, equals what a model in memory recorded, also during
 * concurrent writes.
 */

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const ask = askAs(api, acme);

type Content = ReadonlyMap<string, string>;

async function addDataset(): Promise<string> {
  return (await ask('POST', '/datasets', { name: randomUUID() })).body.id;
}

async function readContent(dataset: string, asOf?: string): Promise<Content> {
  const at = asOf === undefined ? '' : `&as_of=${encodeURIComponent(asOf)}`;
  const { status, body } = await ask('GET', `/examples?dataset=${dataset}${at}`);
  expect(status).toBe(200);
  const rows = body as { id: string; inputs: object; metadata: object }[];
  return new Map(rows.map(({ id, inputs, metadata }) => [id, JSON.stringify([inputs, metadata])]));
}

const newest = async (dataset: string): Promise<string> =>
  (await ask('GET', `/datasets/${dataset}/version?tag=latest`)).body.as_of;

const operation = fc.record({
  kind: fc.constantFrom('create', 'create', 'change', 'change', 'split', 'delete', 'delete for ever'),
  at: fc.nat(1_000),
  value: fc.nat(9),
});

it('returns at each version what was there, whatever followed', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { minLength: 1, maxLength: 15 }), async (operations) => {
      const dataset = await addDataset();
      const versions = new Map<string, Map<string, string>>();
      for (const { kind, at, value } of operations) {
        const ids = [...(await readContent(dataset)).keys()];
        const id = ids[at % Math.max(1, ids.length)];
        const answer =
          kind === 'create' || id === undefined
            ? await ask('POST', '/examples', { dataset_id: dataset, inputs: { value } })
            : kind === 'change'
              ? await ask('PATCH', `/examples/${id}`, { inputs: { value } })
              : kind === 'split'
                ? await ask('PUT', `/datasets/${dataset}/splits`, { split_name: `s${value}`, examples: [id] })
                : kind === 'delete'
                  ? await ask('DELETE', `/examples/${id}`)
                  : await ask('POST', '/v1/platform/datasets/examples/delete', {
                      example_ids: [id],
                      hard_delete: true,
                    });
        expect(answer.status).toBe(200);
        // A hard deletion removes the example from all versions.
        if (kind === 'delete for ever' && id !== undefined) for (const content of versions.values()) content.delete(id);
        versions.set(await newest(dataset), new Map(await readContent(dataset)));
      }
      expect(versions.size).toBe(operations.length);
      for (const [asOf, content] of versions) {
        expect(await readContent(dataset, asOf)).toEqual(content);
        expect(await readContent(dataset, new Date(asOf).toISOString())).toEqual(content);
        expect((await ask('GET', `/examples/count?dataset=${dataset}&as_of=${asOf}`)).body).toBe(content.size);
      }
      const record = (await ask('GET', `/datasets/${dataset}`)).body;
      expect(record.example_count).toBe((await readContent(dataset)).size);
    }),
    { numRuns: 15 },
  );
});

it('returns the same at a time that has passed, also while others write', async () => {
  const dataset = await addDataset();
  const reads: { asOf: string; content: Content }[] = [];
  const write = async () => {
    for (let n = 0; n < 15; n++) {
      expect((await ask('POST', '/examples', { dataset_id: dataset, inputs: { n } })).status).toBe(200);
    }
  };
  const read = async () => {
    for (let n = 0; n < 30; n++) {
      const asOf = new Date().toISOString();
      reads.push({ asOf, content: await readContent(dataset, asOf) });
    }
  };
  await Promise.all([write(), write(), write(), read(), read()]);
  for (const { asOf, content } of reads) expect(await readContent(dataset, asOf)).toEqual(content);
  const versions = (await ask('GET', `/datasets/${dataset}/versions`)).body as { as_of: string }[];
  expect(new Set(versions.map(({ as_of }) => as_of)).size).toBe(45);
  expect((await readContent(dataset)).size).toBe(45);
});
