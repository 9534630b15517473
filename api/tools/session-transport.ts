/**
 * Transport of one session. That of the official package answers every request with an event stream, which takes longer
 * than a quick call itself. Here, a response that is ready soon is JSON; only other requests get a stream.
 *
 * Invariant: the server gets each request once, and its response is sent once, to its own request.
 *
 *   1. {@link SessionTransport.answer} passes a request to the server, and waits for its response. A request with the id
 *      of one that is not answered is refused.
 *   2. A response within {@link holdMs} is the answer.
 *   3. After that time the transport of the package creates a stream for the request, and its messages go there. The
 *      server has the request already, so it does not get that of the package.
 *   4. All other messages pass through the transport of the package. It has no stream for a notification about a request
 *      that waits, so the server must not send one before the response; no tool does.
 */
import {
  type HandleRequestOptions,
  WebStandardStreamableHTTPServerTransport,
  type WebStandardStreamableHTTPServerTransportOptions,
} from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import type { Transport, TransportSendOptions } from '@modelcontextprotocol/sdk/shared/transport.js';
import {
  ErrorCode,
  type JSONRPCMessage,
  type JSONRPCRequest,
  type RequestId,
} from '@modelcontextprotocol/sdk/types.js';

/** Most calls end within this time. A client whose connection breaks earlier has no event from which it can resume. */
const holdMs = 100;

const idInUse = { code: ErrorCode.InvalidRequest, message: 'A request with this id is not answered yet.' };

export class SessionTransport implements Transport {
  onmessage?: NonNullable<Transport['onmessage']>;
  onclose?: () => void;
  onerror?: (error: Error) => void;
  readonly #streams: WebStandardStreamableHTTPServerTransport;
  readonly #waiting = new Map<RequestId, (response: JSONRPCMessage) => void>();
  /** Requests whose stream is being created. */
  readonly #handedOver = new Set<RequestId>();
  /** All requests of {@link answer} that have no response yet. */
  readonly #unanswered = new Set<RequestId>();

  constructor(options: WebStandardStreamableHTTPServerTransportOptions) {
    this.#streams = new WebStandardStreamableHTTPServerTransport(options);
  }

  get sessionId(): string | undefined {
    return this.#streams.sessionId;
  }

  async start(): Promise<void> {
    this.#streams.onclose = () => {
      this.#unanswered.clear();
      this.onclose?.();
    };
    this.#streams.onerror = (error) => this.onerror?.(error);
    this.#streams.onmessage = (message, extra) => {
      const isKnown = 'method' in message && 'id' in message && this.#handedOver.delete(message.id);
      if (!isKnown) this.onmessage?.(message, extra);
    };
    await this.#streams.start();
  }

  close(): Promise<void> {
    return this.#streams.close();
  }

  async send(message: JSONRPCMessage, { relatedRequestId }: TransportSendOptions = {}): Promise<void> {
    const id = 'method' in message ? undefined : message.id;
    const resolve = id === undefined ? undefined : this.#waiting.get(id);
    if (id !== undefined) this.#unanswered.delete(id);
    if (resolve === undefined)
      await this.#streams.send(message, relatedRequestId === undefined ? {} : { relatedRequestId });
    else resolve(message);
  }

  /** Answers any request of the session as the official package does. */
  handleRequest(request: Request, options?: HandleRequestOptions): Promise<Response> {
    return this.#streams.handleRequest(request, options);
  }

  /**
   * Answers a valid request that is not `initialize`: with its response, or with a stream.
   *
   * @param toWebRequest returns the request with its headers, for the stream.
   */
  answer(
    message: JSONRPCRequest,
    { authInfo }: Pick<HandleRequestOptions, 'authInfo'>,
    toWebRequest: () => Request,
  ): Promise<JSONRPCMessage | Response> {
    const { id } = message;
    if (this.#unanswered.has(id)) return Promise.resolve({ jsonrpc: '2.0', id, error: idInUse });
    this.#unanswered.add(id);
    const options = { parsedBody: message, ...(authInfo && { authInfo }) };
    return new Promise((resolve) => {
      const handOver = () => {
        this.#waiting.delete(id);
        this.#handedOver.add(id);
        // Registers the stream before anything else can send a message.
        resolve(this.handleRequest(toWebRequest(), options).finally(() => this.#handedOver.delete(id)));
      };
      const timer = setTimeout(handOver, holdMs);
      this.#waiting.set(id, (response) => {
        clearTimeout(timer);
        this.#waiting.delete(id);
        resolve(response);
      });
      this.onmessage?.(message, options);
    });
  }
}
