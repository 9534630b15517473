/**
 * Columns of the Postgres tables that are listed, filtered and paged through `infra/postgres/list-page.ts`. Times are
 * texts with microseconds; see `infra/postgres/database.ts` for the other types.
 */
export interface Tables {
  readonly datasets: DatasetTable;
  readonly dataset_versions: { readonly dataset_id: string; readonly as_of: string };
  readonly dataset_tags: { readonly dataset_id: string; readonly tag: string; readonly as_of: string };
  readonly examples: ExampleTable;
  readonly comparative_experiments: ComparativeExperimentTable;
  readonly projects: ProjectTable;
}

interface DatasetTable {
  readonly id: string;
  readonly workspace_id: string;
  readonly name: string;
  readonly description: string | null;
  readonly data_type: string;
  readonly inputs_schema_definition: string | null;
  readonly outputs_schema_definition: string | null;
  readonly metadata: string | null;
  readonly searchable: unknown;
  readonly baseline_experiment_id: string | null;
  readonly externally_managed: boolean;
  readonly example_count: number;
  readonly last_version: string | null;
  readonly version_count: number;
  readonly created_at: string;
  readonly modified_at: string;
}

interface ExampleTable {
  readonly workspace_id: string;
  readonly dataset_id: string;
  readonly id: string;
  readonly valid_from: string;
  readonly valid_to: string;
  readonly created_at: string;
  readonly inputs: string;
  readonly outputs: string | null;
  readonly metadata: string;
  readonly searchable: unknown;
  readonly source_run_id: string | null;
  readonly attachments: unknown;
}

interface ComparativeExperimentTable {
  readonly id: string;
  readonly workspace_id: string;
  readonly dataset_id: string;
  readonly experiment_ids: readonly string[];
  readonly name: string | null;
  readonly description: string | null;
  readonly extra: string | null;
  readonly created_at: string;
  readonly modified_at: string;
}

interface ProjectTable {
  readonly reference_dataset_id: string | null;
  readonly start_time: string;
  readonly deleted_at: string | null;
}
