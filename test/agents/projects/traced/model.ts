import type { CallbackManagerForLLMRun } from '@langchain/core/callbacks/manager';
import { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { AIMessage, AIMessageChunk, type BaseMessage } from '@langchain/core/messages';
import { ChatGenerationChunk, type ChatResult } from '@langchain/core/outputs';

const usage_metadata = { input_tokens: 11, output_tokens: 7, total_tokens: 18 };

type MessageFields = ConstructorParameters<typeof AIMessageChunk>[0] & ConstructorParameters<typeof AIMessage>[0];

function said(content: string, last: boolean): MessageFields {
  return { content, ...(last && { usage_metadata }) } as unknown as MessageFields;
}

/** Answers every prompt with the same two words and their token usage. */
export class TwoWords extends BaseChatModel {
  constructor() {
    super({});
  }

  _llmType(): string {
    return 'two-words';
  }

  override getLsParams() {
    return { ls_provider: 'test', ls_model_name: 'two-words', ls_model_type: 'chat' as const };
  }

  async _generate(_messages: BaseMessage[]): Promise<ChatResult> {
    return { generations: [{ text: 'Hello there', message: new AIMessage(said('Hello there', true)) }] };
  }

  override async *_streamResponseChunks(
    _messages: BaseMessage[],
    _options: unknown,
    manager?: CallbackManagerForLLMRun,
  ): AsyncGenerator<ChatGenerationChunk> {
    for (const [place, text] of ['Hello', ' there'].entries()) {
      const message = new AIMessageChunk(said(text, place === 1));
      const chunk = new ChatGenerationChunk({ text, message });
      yield chunk;
      await manager?.handleLLMNewToken(text, undefined, undefined, undefined, undefined, { chunk });
    }
  }
}
