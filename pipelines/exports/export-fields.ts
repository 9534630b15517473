import { exportFields, isExportField } from '../../schemas/parquet/run-columns.ts';

/** The requested fields, and those of them that are unknown. All fields if none are requested. */
export function resolveFields(requested: readonly string[] | null | undefined): {
  readonly fields: readonly string[];
  readonly unknown: readonly string[];
} {
  if (requested === null || requested === undefined) return { fields: exportFields, unknown: [] };
  return { fields: requested, unknown: requested.filter((name) => !isExportField(name)) };
}
