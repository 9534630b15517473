import { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { AIMessage } from '@langchain/core/messages';
import { createAgent, humanInTheLoopMiddleware, tool } from 'langchain';
import { z } from 'zod';

/** A model that requests the weather tool once, then repeats the result. */
class Forecaster extends BaseChatModel {
  constructor() {
    super({});
  }

  _llmType() {
    return 'forecaster';
  }

  bindTools() {
    return this;
  }

  async _generate(messages) {
    const last = messages.at(-1);
    const call = { id: 'call-1', name: 'weather', args: { city: 'Lyon' }, type: 'tool_call' };
    const message =
      last?.type === 'tool'
        ? new AIMessage(`I heard: ${last.text}`)
        : new AIMessage({ content: '', tool_calls: [call] });
    return { generations: [{ text: message.text, message }] };
  }
}

const weather = tool(({ city }) => `sun over ${city}`, {
  name: 'weather',
  description: 'What the weather is in a city',
  schema: z.object({ city: z.string() }),
});

export const agent = createAgent({
  model: new Forecaster(),
  tools: [weather],
  middleware: [humanInTheLoopMiddleware({ interruptOn: { weather: true } })],
});

export const made = async () => createAgent({ model: new Forecaster(), tools: [weather] });
