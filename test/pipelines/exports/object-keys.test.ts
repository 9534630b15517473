import { randomUUID } from 'node:crypto';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { DestinationConfig } from '../../../pipelines/exports/destinations/destination.ts';
import { openDestination } from '../../../pipelines/exports/destinations/open-destination.ts';
import { buildManifestKey, buildPartKey } from '../../../pipelines/exports/record.ts';
import { forSuite } from '../../for-suite.ts';
import { openExportsUnderTest } from './exports-under-test.ts';

const shop = forSuite(() => openExportsUnderTest({ exportsPerWorkspace: 1_000 }));

const credentials = JSON.stringify({ access_key_id: 'some-id', secret_access_key: 'some-secret' });

/** Consumers find files by these keys; `include_bucket_in_prefix` adds the bucket. */
describe.each([
  ['', ''],
  ['a', 'a/'],
  ['a/b', 'a/b/'],
  ['/a/b/', 'a/b/'],
  ['a//b', 'a//b/'],
  [' a ', ' a /'],
  ['a=b/%2F?#', 'a=b/%2F?#/'],
  ["l'été/漢字/😀", "l'été/漢字/😀/"],
])('with the prefix %j', (prefix, expectedPrefix) => {
  it.each([
    ['the bucket', 's3', { bucket_name: 'some-bucket' }, 'some-bucket/'],
    [
      'the bucket at an endpoint',
      's3',
      { bucket_name: 'some-bucket', endpoint_url: 'http://store.example' },
      'some-bucket/',
    ],
    [
      'no bucket, because the endpoint contains it',
      's3',
      { endpoint_url: 'http://store.example/b', include_bucket_in_prefix: false },
      '',
    ],
    [
      'no bucket, which the configuration names all the same',
      's3',
      { bucket_name: 'some-bucket', include_bucket_in_prefix: false },
      '',
    ],
    ['a folder', 'local', { include_bucket_in_prefix: false }, ''],
  ] as const)('paths begin with %s, both in lists and in the manifest', async (_what, type, more, bucket) => {
    const config: DestinationConfig = {
      bucket_name: null,
      region: null,
      endpoint_url: null,
      include_bucket_in_prefix: true,
      config_kwargs_s3: null,
      ...more,
      prefix,
    };
    const destinationId = randomUUID();
    await shop.database.execute(
      `INSERT INTO bulk_export_destinations (id, workspace_id, destination_type, display_name, config, sealed_credentials)
       VALUES ($1, $2, $3, 'd', $4, $5)`,
      [destinationId, shop.workspaceId, type, config, shop.destinations.sealer.seal(credentials, destinationId)],
    );
    const made = await shop.create({ destinationId, formatVersion: 'v1' });
    await shop.start(made.id);
    const [run] = await shop.runs(made.id);
    if (run === undefined) throw new Error('the export has no run');
    const of = `export_id=${made.id}/tenant_id=${shop.workspaceId}/session_id=${shop.projectId}`;
    expect(run.folder).toBe(`${bucket}${expectedPrefix}${of}/runs/year=2026/month=03/day=05`);
    expect(run.prefix).toBe(`${expectedPrefix}${of}`);
    const store = await openDestination(shop.destinations, { workspaceId: shop.workspaceId, destinationId });
    onTestFinished(() => store.close());
    expect(store.resolvePath(buildPartKey(made, run, 7))).toBe(`${run.folder}/${run.id}-000007.parquet`);
    expect(store.resolvePath(buildManifestKey(made))).toBe(`${bucket}${run.prefix}/_manifest.json`);
  });
});

const of = { id: 'e', workspaceId: 't', projectId: 's', formatVersion: 'v1' } as const;
const run = { id: '0197f2b1-5a3e-7c41-9d20-3f5a7c9e1b24', startTime: '2026-03-05T00:00:00.000000Z' };

describe('the key of a part', () => {
  it.each([
    ['v1', 'runs'],
    ['v2_beta', 'resource=runs'],
  ] as const)('%s', (formatVersion, resource) => {
    expect(buildPartKey({ ...of, formatVersion }, run, 1)).toBe(
      `export_id=e/tenant_id=t/session_id=s/${resource}/year=2026/month=03/day=05/0197f2b1-5a3e-7c41-9d20-3f5a7c9e1b24-000001.parquet`,
    );
    expect(buildManifestKey(of)).toBe('export_id=e/tenant_id=t/session_id=s/_manifest.json');
  });

  it.each([
    ['the first moment of a year', '2024-01-01T00:00:00.000000Z', 'year=2024/month=01/day=01'],
    ['the last moment of a leap day', '2024-02-29T23:59:59.999999Z', 'year=2024/month=02/day=29'],
    ['the last moment of a year', '2025-12-31T23:59:59.999999Z', 'year=2025/month=12/day=31'],
  ])('%s', (_, startTime, day) => {
    expect(buildPartKey(of, { ...run, startTime }, 1)).toContain(`/${day}/`);
  });

  it('sorts the parts of a run by number', () => {
    const keys = [1, 2, 9, 10, 99, 100, 99_999, 999_999].map((part) => buildPartKey(of, run, part));
    expect([...keys].sort()).toEqual(keys);
  });
});
