throw new Error('fails while it is imported, on purpose');
