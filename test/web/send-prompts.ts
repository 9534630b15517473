/** Returns the manifest of a chat prompt as LangChain serialises it, with a model if it has settings. */
export function buildChatPrompt(system: string, settings?: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const messages = [
    buildMessage('SystemMessagePromptTemplate', system),
    build(['prompts', 'chat', 'MessagesPlaceholder'], { variable_name: 'history', optional: true }),
    buildMessage('HumanMessagePromptTemplate', '{question}'),
    buildMessage('AIMessagePromptTemplate', 'Let me look.'),
  ];
  const prompt = build(['prompts', 'chat', 'ChatPromptTemplate'], {
    input_variables: [...(system.match(/(?<=\{)\w+(?=\})/g) ?? []), 'history', 'question'],
    messages,
  });
  if (settings === undefined) return prompt;
  const model = build(['chat_models', 'openai', 'ChatOpenAI'], {
    ...settings,
    openai_api_key: { lc: 1, type: 'secret', id: ['OPENAI_API_KEY'] },
  });
  return build(['schema', 'runnable', 'RunnableSequence'], { first: prompt, last: model });
}

function build(path: readonly string[], kwargs: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return { lc: 1, type: 'constructor', id: ['langchain', ...path], kwargs };
}

function buildMessage(name: string, template: string): Record<string, unknown> {
  const prompt = build(['prompts', 'prompt', 'PromptTemplate'], { template, template_format: 'f-string' });
  return build(['prompts', 'chat', name], { prompt });
}
