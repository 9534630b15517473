import { randomUUID } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Sql } from '../../../../infra/postgres/database.ts';
import { deleteAttachmentSets } from '../../../../pipelines/attachments/attachment-sets.ts';
import { cloneExamples } from '../../../../pipelines/datasets/clone-examples.ts';
import { hardDeleteExamples } from '../../../../pipelines/datasets/delete-examples.ts';
import { writeVersionInTransaction } from '../../../../pipelines/datasets/versions.ts';
import { wrapCommands } from '../../../engines/on-stored-table.ts';
import { forSuite } from '../../../for-suite.ts';
import { listLockWaits } from '../../../infra/postgres/lock-waits.ts';
import { until } from '../../../infra/until.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, startApi } from '../../start-api.ts';

/** Attachments of examples whose write failed. */

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));
const client = forSuite(() =>
  openClient(api, acme.adminKey, { autoBatchTracing: false, callerOptions: { maxRetries: 0 } }),
);
let workspaceId: string;
let datasetId: string;

beforeAll(() => {
  [workspaceId] = acme.workspaceIds;
});
beforeEach(async () => {
  datasetId = (await client.createDataset(randomUUID())).id;
});

const pending = async () =>
  (await api.database.query<{ id: string }>('SELECT id FROM pending_attachment_sets')).map(({ id }) => id);
const age = () => api.database.execute(`UPDATE pending_attachment_sets SET created_at = now() - interval '61 minutes'`);

async function storedSets(): Promise<string[]> {
  const sql = 'SELECT DISTINCT toString(run_id) AS id FROM attachments FINAL';
  const rows = await api.services.clickhouse.query<{ id: string }>({ name: 'stored-sets', sql });
  return rows.map(({ id }) => id);
}

function write(id: string = randomUUID(), inputs: object = {}) {
  const content = new TextEncoder().encode('content') as Uint8Array<ArrayBuffer>;
  const attachments = { note: ['text/plain', content] as ['text/plain', Uint8Array<ArrayBuffer>] };
  return client.createExample({ id, dataset_id: datasetId, inputs, attachments });
}

it('a later write deletes what a failed write has left', async () => {
  const { id } = await write();
  expect(await pending()).toEqual([]);
  const before = await storedSets();
  await expect(write(id, { other: 1 })).rejects.toThrow(/already exists/);
  const [left = ''] = await pending();
  expect(await storedSets()).toEqual(expect.arrayContaining([...before, left]));

  await write();
  expect(await pending()).toEqual([left]);
  await age();
  const { id: last } = await write();
  expect(await pending()).toEqual([]);
  expect(await storedSets()).not.toContain(left);
  expect(await storedSets()).toEqual(expect.arrayContaining(before));
  for (const example of [id, last]) {
    const url = (await client.readExample(example)).attachments?.note?.presigned_url ?? '';
    expect(await (await fetch(url)).text()).toBe('content');
  }
});

it('a write that is still committing keeps its attachments, and an interrupted one cannot commit', async () => {
  const { id } = await write();
  await expect(write(id, { other: 1 })).rejects.toThrow(/already exists/);
  const [left = ''] = await pending();
  await age();
  await api.database.transaction(async (tx) => {
    // The same statement as in the transaction that commits the examples.
    await tx.execute('DELETE FROM pending_attachment_sets WHERE id = $1', [left]);
    await write();
    expect(await storedSets()).toContain(left);
  });
  expect(await pending()).toEqual([]);
});

it('a change and a clone leave nothing pending', async () => {
  const { id } = await write();
  const content = new TextEncoder().encode('new') as Uint8Array<ArrayBuffer>;
  await client.updateExample({ id, dataset_id: datasetId, attachments: { other: ['text/plain', content] } });
  const target = await client.createDataset(randomUUID());
  const apiKey = (client as unknown as { apiKey: string }).apiKey;
  const ids = { source_dataset_id: datasetId, target_dataset_id: target.id };
  expect((await api.ask(apiKey, 'POST', '/datasets/clone', ids)).status).toBe(200);
  expect(await pending()).toEqual([]);
});

describe('a clone beside a permanent deletion', () => {
  const links = () => ({ signer: api.services.attachmentSigner, linkBase: '' });
  const clone = async (targetId: string, services = api.services) =>
    JSON.parse(
      await text(await cloneExamples(services, workspaceId, { sourceId: datasetId, targetId }, links())),
    ) as object[];
  const hardDelete = (id: string) => hardDeleteExamples(api.services, workspaceId, [id]);
  const addTarget = async () => (await client.createDataset(randomUUID())).id;

  async function listCopies(targetId: string) {
    const copies = [];
    const found = client.listExamples({ datasetId: targetId, includeAttachments: true });
    for await (const copy of found) copies.push(copy);
    return copies;
  }

  /** Returns the services; `work` wraps the ClickHouse commands with this name. */
  function wrapCommand(name: string, work: (command: () => Promise<void>) => Promise<void>): typeof api.services {
    const clickhouse = wrapCommands(api.services.clickhouse, (command, run) =>
      command.name === name ? work(run) : run(),
    );
    return { ...api.services, clickhouse };
  }

  it('leaves no copy of an attachment whose example was deleted after it was copied', async () => {
    const [kept, deleted] = [await write(), await write()];
    const before = await storedSets();
    const targetId = await addTarget();
    const services = wrapCommand('copy-attachment-sets', async (copy) => {
      await copy();
      await hardDelete(deleted.id);
    });
    expect(await clone(targetId, services)).toHaveLength(1);
    // One original fewer, one copy more.
    expect(await storedSets()).toHaveLength(before.length);
    expect(await pending()).toEqual([]);
    const [copy] = await listCopies(targetId);
    expect(await (await fetch(copy?.attachments?.note?.presigned_url ?? '')).text()).toBe('content');
    await hardDelete(kept.id);
  });

  // Which dataset a clone locks first depends on the ids.
  it.each(['smaller', 'greater'])(
    'has no example whose content is being deleted, if the target id is %s',
    async (order) => {
      const { id } = await write();
      let targetId = await addTarget();
      while (targetId < datasetId !== (order === 'smaller')) targetId = await addTarget();
      let cloning: Promise<object[]> | undefined;
      // As another process does, which does not share the queue of this one.
      const remove = (tx: Sql) => async () => {
        const [row] = await tx.query<{ sets: string[] }>(
          `DELETE FROM examples WHERE id = $1 RETURNING array(SELECT value ->> 'set' FROM jsonb_each(attachments)) AS sets`,
          [id],
        );
        await deleteAttachmentSets(api.services.clickhouse, workspaceId, row?.sets ?? []);
        let isDone = false;
        cloning = clone(targetId).finally(() => {
          isDone = true;
        });
        await until('the clone', async () => isDone || (await listLockWaits(api.database)).length > 0);
        return -1;
      };
      await api.database.transaction((tx) => writeVersionInTransaction(tx, workspaceId, datasetId, remove(tx)));
      expect(await cloning).toEqual([]);
      expect(await pending()).toEqual([]);
    },
  );

  it('at a time in the future has the examples of the newest version, with attachments of their own', async () => {
    const { id } = await write();
    const targetId = await addTarget();
    const services = wrapCommand('copy-attachment-sets', async (copy) => {
      await copy();
      await write();
    });
    const request = { sourceId: datasetId, targetId, asOf: '2200-01-01T00:00:00Z' };
    const copies = JSON.parse(await text(await cloneExamples(services, workspaceId, request, links())));
    expect(copies).toHaveLength(1);
    await hardDelete(id);
    const [copy] = await listCopies(targetId);
    expect(await (await fetch(copy?.attachments?.note?.presigned_url ?? '')).text()).toBe('content');
  });

  it('copies many attachments with several statements, each of which ends before its timeout', async () => {
    const content = new TextEncoder().encode('content') as Uint8Array<ArrayBuffer>;
    const note = ['text/plain', content] as ['text/plain', Uint8Array<ArrayBuffer>];
    const attachments = { note, other: note };
    const examples = Array.from({ length: 60 }, (_, n) => ({ dataset_id: datasetId, inputs: { n }, attachments }));
    await client.createExamples(examples);
    const before = await storedSets();
    const targetId = await addTarget();
    let statements = 0;
    const services = wrapCommand('copy-attachment-sets', async (copy) => {
      statements += 1;
      await copy();
    });
    expect(await clone(targetId, services)).toHaveLength(60);
    expect(statements).toBe(2);
    expect(await storedSets()).toHaveLength(before.length + 60);
  });
});
