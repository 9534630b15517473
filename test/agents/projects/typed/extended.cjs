// CommonJS: it loads its own copy of the library, so its schema registry is not the server's.
const { StateGraph } = require('@langchain/langgraph');
const { withLangGraph } = require('@langchain/langgraph/zod');
const { z } = require('zod');

const State = z.object({
  prompt: withLangGraph(z.string().describe('What to ask.'), { jsonSchemaExtra: { langgraph_type: 'prompt' } }),
  tone: z.enum(['dry', 'warm']),
});

exports.graph = new StateGraph(State)
  .addNode('keep', ({ prompt }) => ({ prompt }))
  .addEdge('__start__', 'keep')
  .compile();
