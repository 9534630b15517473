import { toPairs, toReadableJson } from '../json-sql.ts';
import { threadIdSql } from '../run-columns.ts';
import { defaultRunType } from '../run-scope.ts';
import type { RunGrouping } from './matching-runs.ts';

export const groupAttributes = ['name', 'run_type', 'tag', 'metadata'] as const;
export type GroupAttribute = (typeof groupAttributes)[number];

/** The pairs of the metadata, step by step. */
const metadataExpressions = [
  `${toReadableJson(`ifNull(extra, '{}')`)} AS group_extra`,
  `JSONExtractRaw(group_extra, 'metadata') AS group_metadata`,
  `${toPairs('group_metadata')} AS group_pairs`,
];

const attributes: Readonly<Record<GroupAttribute, string>> = {
  name: `ifNull(name, '')`,
  run_type: `ifNull(run_type, '${defaultRunType}')`,
  tag: `arrayJoin(arrayDistinct(JSONExtract(${toReadableJson(`ifNull(tags, '[]')`)}, 'Array(String)')))`,
  metadata: `arrayFirst(pair -> pair.1 = {group_path:String} AND isNotNull(pair.2), group_pairs).2`,
};

/** @param path key of the metadata; nested keys are joined by dots. */
export function buildGrouping(attribute: GroupAttribute, path: string): RunGrouping {
  const sql = attributes[attribute];
  return attribute === 'metadata' ? { sql, expressions: metadataExpressions, params: { group_path: path } } : { sql };
}

export const byProject: RunGrouping = { sql: 'toString(session_id)', isOfTrace: true };

/** The thread of a run is that of its own metadata, so only root runs can be grouped. */
export const byThread: RunGrouping = { sql: threadIdSql };
