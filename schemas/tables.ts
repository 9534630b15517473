/**
 * Columns of the Postgres tables that `infra/postgres/list-page.ts` lists, filters and pages. Times are text with
 * microsecond precision; see `infra/postgres/database.ts` for the other types.
 */
export interface Tables {
  readonly datasets: DatasetTable;
  readonly dataset_versions: { readonly dataset_id: string; readonly as_of: string };
  readonly dataset_tags: { readonly dataset_id: string; readonly tag: string; readonly as_of: string };
  readonly examples: ExampleTable;
  readonly comparative_experiments: ComparativeExperimentTable;
  readonly projects: ProjectTable;
  readonly workspaces: {
    readonly id: string;
    readonly tenant_handle: string | null;
    readonly deleted_at: string | null;
  };
  readonly users: { readonly id: string; readonly full_name: string | null };
  readonly repos: RepoTable;
  readonly repo_commits: RepoCommitTable;
  readonly annotation_queues: AnnotationQueueTable;
  readonly feedback_configs: FeedbackConfigTable;
  readonly evaluators: EvaluatorTable;
  readonly model_prices: ModelPriceTable;
}

interface DatasetTable {
  readonly id: string;
  readonly workspace_id: string;
  readonly name: string;
  readonly description: string | null;
  readonly data_type: string;
  readonly inputs_schema_definition: string | null;
  readonly outputs_schema_definition: string | null;
  readonly transformations: string | null;
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
  readonly workspace_id: string;
  readonly reference_dataset_id: string | null;
  readonly start_time: string;
  readonly deleted_at: string | null;
}

interface RepoTable {
  readonly id: string;
  readonly workspace_id: string;
  readonly handle: string;
  readonly repo_type: string;
  readonly description: string | null;
  readonly readme: string | null;
  readonly tags: string[];
  readonly is_public: boolean;
  readonly is_archived: boolean;
  readonly last_commit_id: string | null;
  readonly commit_count: number;
  readonly like_count: number;
  readonly download_count: number;
  readonly view_count: number;
  readonly created_at: string;
  readonly updated_at: string;
}

interface RepoCommitTable {
  readonly id: string;
  readonly repo_id: string;
  readonly number: number;
  readonly hash: string;
  readonly parent_id: string | null;
  readonly manifest: string;
  readonly description: string | null;
  readonly created_by: string;
  readonly download_count: number;
  readonly view_count: number;
  readonly created_at: string;
}

interface AnnotationQueueTable {
  readonly id: string;
  readonly workspace_id: string;
  readonly name: string;
  readonly description: string | null;
  readonly default_dataset: string | null;
  readonly rubric_instructions: string | null;
  readonly rubric_items: string | null;
  readonly metadata: string | null;
  readonly num_reviewers_per_item: number;
  readonly enable_reservations: boolean;
  readonly reservation_minutes: number;
  readonly reviewer_access_mode: 'any' | 'assigned';
  readonly created_at: string;
  readonly updated_at: string;
}

interface FeedbackConfigTable {
  readonly workspace_id: string;
  readonly id: string;
  readonly feedback_key: string;
  readonly feedback_config: string;
  readonly is_lower_score_better: boolean;
  readonly is_enforced: boolean;
  readonly modified_at: string;
}

interface EvaluatorTable {
  readonly id: string;
  readonly workspace_id: string;
  readonly name: string;
  readonly type: string;
  readonly definition: string;
  readonly metadata: string | null;
  readonly searchable: unknown;
  readonly created_by: string;
  readonly created_at: string;
  readonly updated_at: string;
}

interface ModelPriceTable {
  readonly id: string;
  readonly workspace_id: string;
  readonly name: string;
  readonly start_time: string | null;
  readonly match_path: string[];
  readonly match_pattern: string;
  readonly pattern_size: number;
  readonly provider: string | null;
  readonly prompt_cost: string;
  readonly completion_cost: string;
  readonly prompt_cost_details: string | null;
  readonly completion_cost_details: string | null;
  readonly created_at: string;
}
