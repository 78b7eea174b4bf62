"""Operations, none of which begins under a legal hold; truncation; embedded/ and opensearch/."""
