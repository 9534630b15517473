/**
 * A sweep that writes the manifests of many exports whose process died after it finished the last file; on a real
 * object store.
 */
import { randomBytes } from 'node:crypto';
import { CreateBucketCommand } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createDestination } from '../../../pipelines/exports/destinations/write-destination.ts';
import { sweepExports } from '../../../pipelines/exports/scheduler.ts';
import { type ErrorResponse, type FaultyStore, openFaultyStore } from '../../infra/objects/s3/faulty-store.ts';
import { findStackS3, type StackS3 } from '../../infra/objects/s3/s3-of-stack.ts';
import { until } from '../../infra/until.ts';
import { type ExportsUnderTest, openExportsUnderTest } from './exports-under-test.ts';

const stack = findStackS3();

describe.runIf(stack)('manifests that a sweep writes', () => {
  const s3 = stack as StackS3;
  const bucket = `${s3.passingBucket}-${randomBytes(6).toString('hex')}`;
  let shop: ExportsUnderTest;
  let way: FaultyStore;
  let destinationId: string;
  /** Outcomes that a test sets for manifest requests, by export id; requests for other manifests pass through. */
  const outcomes = new Map<string, () => Promise<ErrorResponse>>();
  const inFlight = { now: 0, max: 0 };
  beforeAll(async () => {
    shop = await openExportsUnderTest(
      { exportsPerWorkspace: 1_000 },
      { s3Limits: { attempts: 1, idleTimeoutMs: 30_000 } },
    );
    await s3.admin.send(new CreateBucketCommand({ Bucket: bucket }));
    way = await openFaultyStore(
      s3.endpoint,
      async ({ url = '' }) => {
        if (!url.includes('_manifest.json')) return undefined;
        inFlight.now++;
        inFlight.max = Math.max(inFlight.max, inFlight.now);
        const id = /export_id(?:=|%3D)([0-9a-f-]{36})/i.exec(url)?.[1] ?? '';
        const outcome = await outcomes.get(id)?.();
        if (outcome !== undefined) inFlight.now--;
        return outcome;
      },
      async ({ url = '' }) => {
        if (url.includes('_manifest.json')) inFlight.now--;
      },
    );
    const { accessKeyId, secretAccessKey } = s3.credentials('guest');
    const made = await createDestination(shop.destinations, shop.workspaceId, {
      type: 's3',
      displayName: 'bucket',
      config: { bucket_name: bucket, prefix: 'made/by tests', endpoint_url: way.endpoint },
      credentials: { access_key_id: accessKeyId, secret_access_key: secretAccessKey },
    });
    destinationId = made.id;
  });
  afterAll(async () => {
    await way?.close();
    await shop?.close();
    await s3?.close();
  });

  /** Creates an export whose runs are all COMPLETED and which has no manifest. */
  async function exportWithoutManifest(): Promise<string> {
    const { id } = await shop.create({ destinationId });
    await shop.start(id);
    await shop.database.execute(
      `UPDATE bulk_export_runs SET status = 'COMPLETED', finished_at = now() WHERE bulk_export_id = $1`,
      [id],
    );
    return id;
  }
  const several = async (count: number) => {
    const ids: string[] = [];
    for (let n = 0; n < count; n++) ids.push(await exportWithoutManifest());
    return ids;
  };
  const statusOf = async (id: string) => (await shop.read(id)).status;

  it('are written concurrently up to a limit, and one that is refused or fails temporarily does not stop the others', async () => {
    const ids = await several(40);
    const [refused = '', unavailable = '', ...others] = ids;
    outcomes.set(refused, async () => ({ status: 403, code: 'AccessDenied' }));
    outcomes.set(unavailable, async () => ({ status: 503, code: 'SlowDown' }));
    // Each request waits until several requests are in flight; with sequential requests this would never happen.
    const concurrent = until('several requests to be in flight', () => inFlight.max >= 4, 20_000);
    for (const id of others) outcomes.set(id, () => concurrent.then(() => undefined));
    await sweepExports(shop.deps);
    await concurrent;
    expect(inFlight.max).toBeLessThanOrEqual(8);
    expect(await Promise.all(others.map(statusOf))).toEqual(others.map(() => 'COMPLETED'));
    expect(await shop.read(refused)).toMatchObject({ status: 'FAILED', manifestAt: null });
    expect(await statusOf(unavailable)).toBe('RUNNING');
    const there = (await s3.objects(bucket)).filter((key) => key.endsWith('_manifest.json'));
    expect(there).toHaveLength(others.length);
    for (const id of others) expect(there.some((key) => key.includes(id))).toBe(true);
    outcomes.clear();
    await sweepExports(shop.deps);
    expect(await statusOf(unavailable)).toBe('COMPLETED');
  });

  it('do not delay the shutdown of a process, and the next one writes them', async () => {
    const ids = await several(12);
    let release: () => void = () => undefined;
    const hanging = new Promise<undefined>((resolve) => {
      release = () => resolve(undefined);
    });
    for (const id of ids) outcomes.set(id, () => hanging);
    const end = new AbortController();
    inFlight.now = 0;
    const sweep = sweepExports(shop.deps, end.signal);
    await until('the requests to hang', () => inFlight.now >= 4);
    end.abort();
    await sweep;
    expect(await Promise.all(ids.map(statusOf))).toEqual(ids.map(() => 'RUNNING'));
    outcomes.clear();
    release();
    await sweepExports(shop.deps);
    expect(await Promise.all(ids.map(statusOf))).toEqual(ids.map(() => 'COMPLETED'));
  });
});
