import { cancelExport } from '../../../pipelines/exports/create-cancel.ts';
import { showExport } from '../../main/bulk-exports.ts';
import { withExports } from './export-access.ts';
import { findExport } from './find-by-name.ts';
import { numberText } from './quantities.ts';

/** `runlake export cancel <id>`. Workers stop within about two seconds; finished files stay. */
export async function cancelOne(id: string, { json = false }: { readonly json?: boolean }): Promise<void> {
  await withExports(async (access) => {
    const { workspaceId } = await findExport(access, id);
    const ended = await cancelExport(access.deps, workspaceId, id);
    if (json) console.log(JSON.stringify(showExport(ended, access.deps.now())));
    else if (ended.intervalHours !== null) {
      console.log(`The schedule ${ended.id} is cancelled; exports that it created continue.`);
    } else {
      const stays = ended.files === 1 ? '1 finished file stays' : `${numberText(ended.files)} finished files stay`;
      console.log(`The export ${ended.id} is cancelled; ${stays} (${numberText(ended.rowsWritten)} rows).`);
    }
  });
}
