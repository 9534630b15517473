import { fault, type RunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import { assistantIdOf } from '../../../pipelines/agents/assistants/system-assistant.ts';
import { metadataWith, type RequiredMetadata } from '../../../pipelines/agents/auth/access-filter.ts';
import type { AuthQuestion } from '../../../pipelines/agents/auth/agent-user.ts';
import type { Allowed, AuthDesk } from '../../../pipelines/agents/auth/auth-desk.ts';
import { type ReachedKind, RowsInReach } from '../../../pipelines/agents/auth/rows-in-reach.ts';
import type { AgentAccess } from './agent-access.ts';

type Values = Readonly<Record<string, unknown>>;

export interface QuestionPorts {
  readonly desk: AuthDesk;
  readonly database: Database;
  readonly deploymentId: string;
  /** Ids of the assistants that graphs have from the start. */
  readonly systemAssistants: ReadonlySet<string>;
  readonly access: AgentAccess;
}

/** What a rule asks: the handlers of the project, and the rows whether they are within what those allow. */
export class Questions {
  readonly #ports: QuestionPorts;
  readonly #rows: RowsInReach;

  constructor(ports: QuestionPorts) {
    this.#ports = ports;
    this.#rows = new RowsInReach(ports.database, ports.deploymentId);
  }

  get ports() {
    return this.#ports;
  }

  /** @throws AUTH_FORBIDDEN, AUTH_UNAVAILABLE, AUTH_HANDLER_INVALID */
  allow(event: AuthQuestion['event'], value: Values): Promise<Allowed> {
    return this.#ports.desk.allow({ event, value, user: this.#ports.access.user });
  }

  /** Asks about something that there is. @throws `missing` where it is not there or not within reach; as {@link allow} does. */
  async reach(event: AuthQuestion['event'], id: string, value: Values, missing: RunlakeError): Promise<Allowed> {
    const allowed = await this.allow(event, value);
    const kind = event.split(':')[0] as ReachedKind;
    if (!(await this.holds(kind, id, allowed.required))) throw missing;
    return allowed;
  }

  /** Whether there is such a row and its metadata holds `required`; true where nothing is required. */
  async holds(kind: ReachedKind, id: string, required: RequiredMetadata | undefined): Promise<boolean> {
    return required === undefined || this.#rows.holds(kind, id, required);
  }

  /** Which assistant goes on with a thread. */
  assistantOfThread(threadId: string): Promise<string | undefined> {
    return this.#rows.assistantOfThread(threadId);
  }

  exists(threadId: string): Promise<boolean> {
    return this.#rows.holds('threads', threadId, {});
  }

  /** An assistant that is to be used: those of graphs are for all, another has to be one that may be read. @throws ASSISTANT_NOT_FOUND */
  async useAssistant(idOrGraphId: string): Promise<void> {
    const id = assistantIdOf(idOrGraphId);
    if (this.#ports.systemAssistants.has(id)) return;
    const missing = fault('ASSISTANT_NOT_FOUND', { assistant: idOrGraphId.slice(0, 100) });
    await this.reach('assistants:read', id, { assistant_id: id, metadata: {} }, missing);
  }

  /** An assistant that is to be shown as one that may be used: its handler is asked about those of graphs, too. @throws ASSISTANT_NOT_FOUND */
  async showAssistant(idOrGraphId: string): Promise<void> {
    const id = assistantIdOf(idOrGraphId);
    const { required } = await this.allow('assistants:read', { assistant_id: id, metadata: {} });
    if (this.#ports.systemAssistants.has(id) || (await this.holds('assistants', id, required))) return;
    throw fault('ASSISTANT_NOT_FOUND', { assistant: idOrGraphId.slice(0, 100) });
  }

  /** A run that is to be made; notes which threads it may be on. The metadata that the run gets. */
  async startRun(
    threadId: string | undefined,
    body: Values & { readonly assistant_id?: string | undefined },
  ): Promise<Values> {
    const { assistant_id, metadata, multitask_strategy, if_not_exists, after_seconds, ...kwargs } = body;
    if (assistant_id !== undefined) await this.useAssistant(assistant_id);
    const { required, value } = await this.allow('threads:create_run', {
      thread_id: threadId ?? null,
      assistant_id: assistant_id === undefined ? null : assistantIdOf(assistant_id),
      run_id: null,
      status: 'pending',
      metadata: metadata ?? {},
      prevent_insert_if_inflight: multitask_strategy === 'reject',
      multitask_strategy: multitask_strategy ?? 'enqueue',
      if_not_exists: if_not_exists ?? 'reject',
      after_seconds: after_seconds ?? 0,
      kwargs,
    });
    const given = recordOf(value.metadata);
    this.#ports.access.assistantId = assistant_id;
    this.#ports.access.threads = { required, metadata: metadataWith(given, required) };
    return given;
  }

  /** Whether all threads that ran an assistant are within `required`. */
  async ownsThreadsOf(assistantId: string, required: RequiredMetadata | undefined): Promise<boolean> {
    return required === undefined || this.#rows.ownsThreadsOf(assistantId, required);
  }
}

export function recordOf(value: unknown): Values {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Values) : {};
}
