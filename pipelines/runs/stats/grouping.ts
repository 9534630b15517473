import { metadataPairs, shownValues, threadIdSql } from '../run-columns.ts';
import type { RunGrouping } from './matching-runs.ts';

export const groupAttributes = ['name', 'run_type', 'tag', 'metadata'] as const;
export type GroupAttribute = (typeof groupAttributes)[number];

const attributes: Readonly<Record<GroupAttribute, string>> = {
  name: shownValues.name,
  run_type: shownValues.run_type,
  tag: `arrayJoin(arrayDistinct(${shownValues.tags}))`,
  metadata: `arrayJoin(arrayDistinct(arrayMap(pair -> assumeNotNull(pair.2),
    arrayFilter(pair -> pair.1 = {group_path:String} AND isNotNull(pair.2), metadata_pairs))))`,
};

/** Builds the grouping by an attribute. @param path Key of the metadata; nested keys are joined by dots. */
export function buildGrouping(attribute: GroupAttribute, path: string): RunGrouping {
  const sql = attributes[attribute];
  if (attribute === 'metadata') return { sql, expressions: metadataPairs, params: { group_path: path } };
  return attribute === 'tag' ? { sql } : { sql, factsSql: attribute === 'name' ? 'shown_name' : 'shown_type' };
}

export const projectGrouping: RunGrouping = {
  sql: 'toString(session_id)',
  factsSql: 'toString(session_id)',
  keepsTracesTogether: true,
};

/** Groups runs by thread. The thread of a run comes from its own metadata, so only root runs can be grouped. */
export const threadGrouping: RunGrouping = { sql: threadIdSql };
