/**
 * The two wire formats of Agent2Agent. The other files use names and types of 0.3; 1.0 has other names of methods, and its
 * messages are the JSON form of protocol buffers. Source: A2A 1.0, 5.3 (method mapping) and appendix A (migration).
 */
import { isJsonObject } from '../../../infra/json/json-value.ts';
import { A2aError } from './a2a-params.ts';
import type { A2aMessage, Artifact, MessagePart, StreamedResult, Task, TaskStatus } from './a2a-task.ts';

export interface WireFormat {
  /** Name of the method in 0.3. */
  readonly method: string;
  /** Converts the params of `message/send` and `message/stream` to those of 0.3, which are not validated. */
  readSendParams(params: unknown): unknown;
  writeTask(task: Task): object;
  /** Writes the result of `message/send`. */
  writeResponse(task: Task): object;
  writeStreamed(result: StreamedResult): object;
}

const methodsOfVersion1: Readonly<Record<string, string>> = {
  SendMessage: 'message/send',
  SendStreamingMessage: 'message/stream',
  GetTask: 'tasks/get',
  ListTasks: 'tasks/list',
  CancelTask: 'tasks/cancel',
  SubscribeToTask: 'tasks/resubscribe',
  CreateTaskPushNotificationConfig: 'tasks/pushNotificationConfig/set',
  GetTaskPushNotificationConfig: 'tasks/pushNotificationConfig/get',
  ListTaskPushNotificationConfigs: 'tasks/pushNotificationConfig/list',
  DeleteTaskPushNotificationConfig: 'tasks/pushNotificationConfig/delete',
  GetExtendedAgentCard: 'agent/getAuthenticatedExtendedCard',
};

/**
 * Returns the format of a request, which the name of its method shows.
 *
 * @param version the header `A2A-Version`.
 * @throws A2aError if the client requires another version.
 */
export function getWireFormat(method: string, version: string | undefined): WireFormat {
  if (version !== undefined && !/^(?:0\.3|1\.\d+)(?:\.\d+)?$|^$/.test(version.trim()))
    throw new A2aError('versionNotSupported', 'Agent2Agent 0.3 and 1.0 are supported.');
  if (Object.hasOwn(methodsOfVersion1, method)) return { ...version1, method: methodsOfVersion1[method]! };
  return { ...version03, method };
}

const version03: Omit<WireFormat, 'method'> = {
  readSendParams: (params) => params,
  writeTask: (task) => task,
  writeResponse: (task) => task,
  writeStreamed: (result) => result,
};

const version1: Omit<WireFormat, 'method'> = {
  readSendParams(params) {
    if (!isJsonObject(params)) return params;
    const { message, configuration } = params;
    return { message: readMessage(message), configuration: readConfiguration(configuration) };
  },
  writeTask,
  writeResponse: (task) => ({ task: writeTask(task) }),
  writeStreamed(result) {
    if (result.kind === 'task') return { task: writeTask(result) };
    const { kind, taskId, contextId } = result;
    if (kind === 'status-update') return { statusUpdate: { taskId, contextId, status: writeStatus(result.status) } };
    const { artifact, append, lastChunk } = result;
    return { artifactUpdate: { taskId, contextId, artifact: writeArtifact(artifact), append, lastChunk } };
  },
};

const rolesOfVersion1: Readonly<Record<string, string>> = { ROLE_USER: 'user', ROLE_AGENT: 'agent' };

function readMessage(message: unknown): unknown {
  if (!isJsonObject(message)) return message;
  const { role, parts } = message;
  return {
    ...message,
    role: typeof role === 'string' && Object.hasOwn(rolesOfVersion1, role) ? rolesOfVersion1[role] : role,
    parts: Array.isArray(parts) ? parts.map(readPart) : parts,
  };
}

function readPart(part: unknown): unknown {
  if (!isJsonObject(part)) return part;
  const kind = 'text' in part ? 'text' : 'data' in part ? 'data' : 'file';
  return { ...part, kind };
}

function readConfiguration(configuration: unknown): unknown {
  if (!isJsonObject(configuration)) return configuration;
  const { historyLength, returnImmediately, taskPushNotificationConfig } = configuration;
  return {
    historyLength,
    blocking: typeof returnImmediately === 'boolean' ? !returnImmediately : returnImmediately,
    pushNotificationConfig: taskPushNotificationConfig,
  };
}

function writeTask({ id, contextId, status, history, artifacts }: Task): object {
  return {
    ...{ id, contextId, status: writeStatus(status) },
    ...{ history: history.map(writeMessage), artifacts: artifacts.map(writeArtifact) },
  };
}

function writeStatus({ state, timestamp, message }: TaskStatus): object {
  const name = `TASK_STATE_${state.toUpperCase().replace('-', '_')}`;
  return { state: name, timestamp, ...(message && { message: writeMessage(message) }) };
}

function writeMessage({ kind: _, role, parts, ...ids }: A2aMessage): object {
  return { ...ids, role: `ROLE_${role.toUpperCase()}`, parts: parts.map(writePart) };
}

function writeArtifact({ parts, ...artifact }: Artifact): object {
  return { ...artifact, parts: parts.map(writePart) };
}

function writePart({ kind: _, ...part }: MessagePart): object {
  return part;
}
