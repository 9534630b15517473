import { readDiskUse } from '../../pipelines/retention/disk-use.ts';
import { withStores } from './open-stores.ts';
import { printTable } from './print-table.ts';

const bytesPerMebibyte = 1024 * 1024;

/** Runs `runlake disk`. */
export async function printDiskUse(): Promise<void> {
  await withStores('disk', async ({ stores }) => {
    const rows = (await readDiskUse(stores)).map(({ workspaceId, workspace, organization, tier, runRows, bytes }) => [
      ...[workspaceId, workspace, organization, tier ?? '-', String(runRows), (bytes / bytesPerMebibyte).toFixed(1)],
    ]);
    printTable([['WORKSPACE', 'NAME', 'ORGANISATION', 'TIER', 'RUN ROWS', 'MIB'], ...rows]);
  });
}
