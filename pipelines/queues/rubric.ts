import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { type FeedbackConfigRecord, listConfigs } from '../feedback/feedback-config.ts';

export const conditionOperators = ['is', 'is_one_of', 'is_empty', 'is_not_empty'] as const;

/** Rules on the feedback for earlier items of the rubric. */
export interface RubricConditions {
  readonly join: 'all' | 'any';
  readonly rules: readonly {
    /** Feedback key of the earlier item. */
    readonly key: string;
    readonly op: (typeof conditionOperators)[number];
    /** Values of categories: one for `is`, at least one for `is_one_of`, none for the other operators. */
    readonly values?: readonly number[] | null;
  }[];
}

/** A criterion that reviewers assess with a feedback key. Clients apply the conditions and the pattern. */
export interface RubricItem {
  readonly feedback_key: string;
  readonly description?: string | null;
  readonly value_descriptions?: Record<string, string> | null;
  readonly score_descriptions?: Record<string, string> | null;
  readonly is_required?: boolean | null;
  readonly is_assertion?: boolean | null;
  /** Pattern that a text must match. */
  readonly regex_validator?: string | null;
  readonly required_if?: RubricConditions | null;
  readonly visible_if?: RubricConditions | null;
}

/** A rubric item with the config of its feedback key, if the key has one. */
export interface RubricItemWithConfig extends RubricItem {
  readonly feedback_config: FeedbackConfigRecord | null;
}

/** Fields that keep their value in an update that omits them. */
const keptFields = ['regex_validator', 'required_if', 'visible_if'] as const;

/**
 * Returns the items with the fields that they omit and that updates keep, from the stored items with the same keys.
 *
 * @throws BAD_REQUEST if a condition of the result is invalid.
 */
export function keepRubricFields(items: readonly RubricItem[], stored: readonly RubricItem[]): RubricItem[] {
  const storedByKey = new Map(stored.map((item) => [item.feedback_key, item]));
  const merged = items.map((item) => {
    const kept = keptFields.filter((name) => item[name] === undefined);
    const storedItem = storedByKey.get(item.feedback_key);
    return { ...item, ...Object.fromEntries(kept.map((name) => [name, storedItem?.[name]])) };
  });
  checkRubric(merged);
  return merged;
}

/** Checks the conditions of the items. @throws BAD_REQUEST */
export function checkRubric(items: readonly RubricItem[]): void {
  const earlierKeys = new Set<string>();
  for (const item of items) {
    for (const name of ['required_if', 'visible_if'] as const) {
      for (const { key, op, values } of item[name]?.rules ?? []) {
        const count = values?.length ?? 0;
        const fits = op === 'is' ? count === 1 : op === 'is_one_of' ? count > 0 : count === 0;
        const problem = !earlierKeys.has(key)
          ? `names ${key}, which is not the feedback key of an earlier item`
          : fits
            ? undefined
            : `has the operator ${op} with ${count} values`;
        if (problem !== undefined)
          throw runlakeError('BAD_REQUEST', { reason: `${name} of ${item.feedback_key} ${problem}.` });
      }
    }
    earlierKeys.add(item.feedback_key);
  }
}

/** Adds the configs of the feedback keys to the items. */
export async function addFeedbackConfigs(
  database: Sql,
  workspaceId: string,
  items: readonly RubricItem[],
): Promise<RubricItemWithConfig[]> {
  if (items.length === 0) return [];
  const keys = items.map(({ feedback_key }) => feedback_key);
  const page = { keys, descending: true, limit: keys.length, offset: 0 };
  const { rows } = await listConfigs(database, workspaceId, page);
  const byKey = new Map(rows.map((config) => [config.feedback_key, config]));
  return items.map((item) => ({ ...item, feedback_config: byKey.get(item.feedback_key) ?? null }));
}
