/**
 * The subscriptions of one connection to the events of a thread.
 *
 * Invariant: the events of all subscriptions are sent in the order of the thread, because an event does not say to which
 * subscription it belongs. The next event is read after the previous one has been sent.
 *
 *   1. One reader serves all subscriptions, and sends an event once if it matches any of them.
 *   2. If the events of a new subscription start before the position of the reader, a reader that starts there replaces
 *      it. It sends no event again for the subscriptions for which the event was read before.
 *   3. If the reader fails, `onFailure` is called, and the connection must end. Then `close` closes all readers.
 */
import { Type } from 'typebox';
import {
  type EventFilter,
  findReplayPosition,
  isStaleAnswer,
  toProtocolMessage,
} from '../../../pipelines/agents/protocol/protocol-event.ts';
import { OpenStarts } from '../../../pipelines/agents/streams/read-position.ts';
import type { StreamedEvent, StreamReader } from '../../../pipelines/agents/streams/stream-types.ts';
import type { Agents } from '../agent-operation.ts';
import { ClosedObject } from '../agent-schema.ts';
import { CommandRejectedError, createParamsReader } from './command.ts';
import { buildMissingEventsError, Filter, toEventFilter } from './thread-events.ts';

interface Subscription {
  readonly filter: EventFilter;
  /** Sequence number up to which its events were read. */
  readUpTo: number;
}

export interface SubscriptionsOptions {
  readonly agents: Agents;
  readonly threadId: string;
  /** Resolves when the connection has accepted the message. Never rejects. */
  send(message: string): Promise<void>;
  /** Called when the events cannot be read any more. */
  onFailure(error: unknown): Promise<void>;
}

const maxSubscriptions = 100;

const readSubscribeParams = createParamsReader(Filter);
const readUnsubscribeParams = createParamsReader(ClosedObject({ subscription_id: Type.String({ maxLength: 100 }) }));

export class ThreadSubscriptions {
  readonly #options: SubscriptionsOptions;
  readonly #subscriptions = new Map<string, Subscription>();
  /** The reader whose events are sent, and one that may replace it. */
  readonly #readers = new Set<StreamReader>();
  /** Highest sequence number that any reader has read. */
  #highest = 0;
  readonly #openStarts = new OpenStarts('now');
  /** The start of the last run that had ended at a replay. */
  #endedStart: number | undefined;
  #lastReader: Promise<void> = Promise.resolve();
  #count = 0;
  #isClosed = false;

  constructor(options: SubscriptionsOptions) {
    this.#options = options;
  }

  /** Opens a subscription. Its events are sent after `begin` is called. @throws INVALID_REQUEST; CommandRejectedError */
  async subscribe(params: unknown): Promise<{ readonly id: string; begin(): void }> {
    if (this.#subscriptions.size >= maxSubscriptions) {
      throw new CommandRejectedError('invalid_argument', `Subscription limit reached (${maxSubscriptions}).`);
    }
    const filter = toEventFilter(readSubscribeParams(params));
    const { agents, threadId } = this.#options;
    const { hub, database, deploymentId } = agents;
    const { endedStart, ...start } = await findReplayPosition(database, deploymentId, threadId);
    const replay = await hub.readThread({ deploymentId, threadId }, { ...start, openStarts: this.#openStarts });
    this.#endedStart = endedStart ?? this.#endedStart;
    if (this.#isClosed) replay.close();
    else this.#readers.add(replay);
    const id = `s${++this.#count}`;
    const begin = () => {
      // Without subscriptions there is no reader.
      const position = Math.min(...[...this.#subscriptions.values()].map(({ readUpTo }) => readUpTo));
      if (position <= start.threadSeq) this.#endReader(replay);
      else this.#continueWith(replay);
      this.#subscriptions.set(id, { filter, readUpTo: start.threadSeq });
    };
    return { id, begin };
  }

  /** @throws INVALID_REQUEST; CommandRejectedError */
  unsubscribe(params: unknown): void {
    const { subscription_id: id } = readUnsubscribeParams(params);
    if (!this.#subscriptions.delete(id))
      throw new CommandRejectedError('no_such_subscription', `Unknown subscription '${id}'.`);
    if (this.#subscriptions.size === 0) this.#endReaders();
  }

  close(): void {
    this.#isClosed = true;
    this.#endReaders();
  }

  /** Sends the events of `replay` instead of those of the current reader. */
  #continueWith(replay: StreamReader): void {
    for (const reader of this.#readers) if (reader !== replay) this.#endReader(reader);
    // The event that the former reader has read last is sent before.
    this.#lastReader = this.#lastReader
      .then(async () => {
        for await (const event of replay) await this.#sendEvent(event);
      })
      .catch((error: unknown) => this.#options.onFailure(error));
  }

  /** Sends an event once if it matches any subscription for which it was not read yet. */
  async #sendEvent(event: StreamedEvent): Promise<void> {
    const { isEnd, threadSeq } = event;
    const isUnreadEnd = (isEnd || threadSeq > this.#highest) && this.#openStarts.record(event);
    this.#highest = Math.max(this.#highest, threadSeq);
    const reading = [...this.#subscriptions.values()].filter(({ readUpTo }) => isUnreadEnd || threadSeq > readUpTo);
    if (reading.length === 0 || isStaleAnswer(event, { endedStart: this.#endedStart })) return;
    for (const each of reading) each.readUpTo = Math.max(each.readUpTo, threadSeq);
    const filters = reading.map(({ filter }) => filter);
    const missing = buildMissingEventsError(event, filters);
    if (missing !== undefined) await this.#options.send(JSON.stringify(missing));
    const message = toProtocolMessage(event, filters);
    if (message !== undefined) await this.#options.send(message.text);
  }

  #endReaders(): void {
    for (const reader of this.#readers) this.#endReader(reader);
  }

  #endReader(reader: StreamReader): void {
    reader.close();
    this.#readers.delete(reader);
  }
}
