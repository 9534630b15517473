import { type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { toJsonObject } from '../../../infra/json/json-value.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import { resolveAssistantId } from '../../../pipelines/agents/assistants/assistant.ts';
import {
  AuthorizedRows,
  addRequiredMetadata,
  type ProtectedTable,
  type RequiredMetadata,
} from '../../../pipelines/agents/auth/access-filter.ts';
import type { AgentUser, AuthorizationRequest } from '../../../pipelines/agents/auth/agent-user.ts';
import type { AccessGrant, AuthProcess } from '../../../pipelines/agents/auth/auth-process.ts';
import type { ThreadAccess } from '../../../pipelines/agents/runs/create-run.ts';

export type Values = Readonly<Record<string, unknown>>;

/** The caller of a request, and what its rules restrict it to. */
export interface CallerAccess {
  readonly user: AgentUser;
  /** Restricts the threads on which the request can start or stop runs. Unset: all threads. */
  threads?: ThreadAccess;
  /** Restricts the store items that the request can find. Unset: all items. */
  items?: RequiredMetadata | undefined;
  /** Assistant of the last authorised run, taken from the request or from the run's thread. */
  assistantId?: string | undefined;
}

interface AuthorizerDeps {
  readonly authProcess: AuthProcess;
  readonly database: Database;
  readonly deploymentId: string;
  /** Ids of the assistants that the server creates for graphs. */
  readonly systemAssistants: ReadonlySet<string>;
  readonly access: CallerAccess;
}

/**
 * Performs the checks that rules request: calls the project's handlers, and compares rows with the metadata that the
 * handlers require.
 */
export class Authorizer {
  readonly deps: AuthorizerDeps;
  readonly rows: AuthorizedRows;

  constructor(deps: AuthorizerDeps) {
    this.deps = deps;
    this.rows = new AuthorizedRows(deps.database, deps.deploymentId);
  }

  /** Calls the project's handler for an event. @throws AUTH_FORBIDDEN, AUTH_UNAVAILABLE, AUTH_HANDLER_INVALID */
  allow(event: AuthorizationRequest['event'], value: Values): Promise<AccessGrant> {
    return this.deps.authProcess.allow({ event, value, user: this.deps.access.user });
  }

  /**
   * Authorises access to an existing row. @throws `notFoundError` if the row does not exist or lacks the required metadata;
   * the errors of {@link allow}.
   */
  async authorizeRow(
    event: AuthorizationRequest['event'],
    id: string,
    value: Values,
    notFoundError: RunlakeError,
  ): Promise<AccessGrant> {
    const allowed = await this.allow(event, value);
    const kind = event.split(':')[0] as ProtectedTable;
    if (!(await this.rowMatches(kind, id, allowed.required))) throw notFoundError;
    return allowed;
  }

  /** Returns true if the row exists and its metadata contains `requiredMetadata`, or if `requiredMetadata` is undefined. */
  async rowMatches(kind: ProtectedTable, id: string, requiredMetadata: RequiredMetadata | undefined): Promise<boolean> {
    return requiredMetadata === undefined || this.rows.rowMatches(kind, id, requiredMetadata);
  }

  /**
   * Authorises the use of an assistant. Every caller can use the assistants that the server creates for graphs; other
   * assistants require read access.
   *
   * @throws ASSISTANT_NOT_FOUND
   */
  async authorizeUseAssistant(idOrGraphId: string): Promise<void> {
    const id = resolveAssistantId(idOrGraphId);
    if (this.deps.systemAssistants.has(id)) return;
    const missing = runlakeError('ASSISTANT_NOT_FOUND', { assistant: idOrGraphId.slice(0, 100) });
    await this.authorizeRow('assistants:read', id, { assistant_id: id, metadata: {} }, missing);
  }

  /**
   * Authorises reading an assistant. Unlike {@link authorizeUseAssistant}, also calls the handler for assistants that
   * the server creates for graphs.
   *
   * @throws ASSISTANT_NOT_FOUND
   */
  async authorizeReadAssistant(idOrGraphId: string): Promise<void> {
    const id = resolveAssistantId(idOrGraphId);
    const { required } = await this.allow('assistants:read', { assistant_id: id, metadata: {} });
    if (this.deps.systemAssistants.has(id) || (await this.rowMatches('assistants', id, required))) return;
    throw runlakeError('ASSISTANT_NOT_FOUND', { assistant: idOrGraphId.slice(0, 100) });
  }

  /**
   * Authorises a new run and records in the access object which threads the run may use. Returns the metadata of the
   * run.
   */
  async authorizeNewRun(
    threadId: string | undefined,
    body: Values & { readonly assistant_id?: string | undefined },
  ): Promise<Values> {
    const { assistant_id, metadata, multitask_strategy, if_not_exists, after_seconds, ...kwargs } = body;
    if (assistant_id !== undefined) await this.authorizeUseAssistant(assistant_id);
    const { required, value } = await this.allow('threads:create_run', {
      thread_id: threadId ?? null,
      assistant_id: assistant_id === undefined ? null : resolveAssistantId(assistant_id),
      run_id: null,
      status: 'pending',
      metadata: metadata ?? {},
      prevent_insert_if_inflight: multitask_strategy === 'reject',
      multitask_strategy: multitask_strategy ?? 'enqueue',
      if_not_exists: if_not_exists ?? 'reject',
      after_seconds: after_seconds ?? 0,
      kwargs,
    });
    const runMetadata = toJsonObject(value.metadata);
    this.deps.access.assistantId = assistant_id;
    this.deps.access.threads = { required, metadata: addRequiredMetadata(runMetadata, required) };
    return runMetadata;
  }
}
