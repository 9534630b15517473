import { exportFields, isExportField } from '../../schemas/parquet/run-columns.ts';

/** The fields that an export asks for, and names that are none; all fields where it asks for none in particular. */
export function fieldsAsked(asked: readonly string[] | null | undefined): {
  readonly fields: readonly string[];
  readonly unknown: readonly string[];
} {
  if (asked === null || asked === undefined) return { fields: exportFields, unknown: [] };
  return { fields: asked, unknown: asked.filter((name) => !isExportField(name)) };
}
