/** Types of A2A 0.3.0 that responses contain, with their names on the wire. Source: A2A 0.3.0, 6. */

export type Part =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'data'; readonly data: Readonly<Record<string, unknown>> };

export interface A2aMessage {
  readonly kind: 'message';
  readonly role: 'user' | 'agent';
  readonly parts: readonly Part[];
  readonly messageId: string;
  readonly taskId?: string;
  readonly contextId?: string;
}

export interface TaskStatus {
  readonly state: 'submitted' | 'working' | 'input-required' | 'completed' | 'failed' | 'canceled';
  readonly timestamp: string;
  readonly message?: A2aMessage;
}

export interface Artifact {
  readonly artifactId: string;
  readonly name: string;
  readonly description: string;
  readonly parts: readonly Part[];
}

export interface Task {
  readonly kind: 'task';
  readonly id: string;
  readonly contextId: string;
  readonly status: TaskStatus;
  readonly history: readonly A2aMessage[];
  readonly artifacts: readonly Artifact[];
}

export type StreamedResult =
  | Task
  | {
      readonly kind: 'status-update';
      readonly taskId: string;
      readonly contextId: string;
      readonly status: TaskStatus;
      readonly final: boolean;
    }
  | {
      readonly kind: 'artifact-update';
      readonly taskId: string;
      readonly contextId: string;
      readonly artifact: Artifact;
      readonly append: boolean;
      readonly lastChunk: boolean;
    };
