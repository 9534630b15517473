import type { Sql } from '../../infra/postgres/database.ts';
import { findCurrentExamples, insertExampleRows, replaceExampleRows } from './example-rows.ts';
import { confirmAttachmentSets } from './pending-attachments.ts';
import { prepareExamples, requireInputs } from './validate-examples.ts';
import { type LockedDataset, writeVersion } from './versions.ts';
import {
  buildChangedRows,
  type ExampleChange,
  type ExampleDeps,
  type NewExample,
  requireDistinctIds,
  requireFreeIds,
  storeAttachments,
  toIdConflict,
  type WrittenExamples,
} from './write-examples.ts';

/**
 * Creates the examples that are not in the dataset, and changes the others as `updateExamples` does, in one version. See
 * `write-examples.ts` for the steps.
 *
 * @throws NOT_FOUND; CONFLICT if an example belongs to another dataset; INVALID_EXAMPLE; EXAMPLE_TOO_LARGE; BAD_REQUEST if
 *   the source runs or the stored metadata are too large; DATASET_FULL; errors of the stores.
 */
export async function upsertExamples(
  deps: ExampleDeps,
  workspaceId: string,
  datasetId: string,
  sent: readonly (NewExample & Pick<ExampleChange, 'attachmentsOperations'>)[],
): Promise<WrittenExamples> {
  requireDistinctIds(sent);
  const examples = await prepareExamples(deps, { workspaceId, datasetId }, sent);
  const { sets, byExample } = await storeAttachments(deps, workspaceId, examples);
  const ids = examples.map(({ id }) => id);
  const write = async (tx: Sql, dataset: LockedDataset) => {
    const former = await findCurrentExamples({ tx, config: deps.config }, dataset, ids);
    const changes = examples.filter(({ id }) => former.has(id));
    const added = examples.filter(({ id }) => !former.has(id)).map(requireInputs);
    await requireFreeIds(tx, workspaceId, added);
    await confirmAttachmentSets(tx, sets);
    await replaceExampleRows(tx, dataset, buildChangedRows(changes, former, byExample));
    await insertExampleRows(
      tx,
      dataset,
      added.map((example) => ({ ...example, attachments: byExample.get(example.id) })),
    );
    return added.length;
  };
  return { asOf: await writeVersion(deps.database, workspaceId, datasetId, write).catch(toIdConflict), ids };
}
